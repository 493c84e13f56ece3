"""What happens beside the answer: titles, summaries, memory notes, budgets, the context prompt."""

"""Language models behind one contract: which one is asked, how it answers, and what it cost."""

"""Chat completions in OpenAI's form, for chat front ends and OpenAI's client libraries, in front of the same pipeline."""

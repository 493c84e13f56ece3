"""The chat-completions format of OpenAI, which most model servers speak: our own client, because the SDK costs ten times
the CPU per streamed answer."""

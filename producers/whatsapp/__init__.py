"""WhatsApp, by the webhooks of Meta's Cloud API."""

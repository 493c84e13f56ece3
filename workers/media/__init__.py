"""Files of messages: fetched just before their turn, kept as blobs, and handed to delivery."""

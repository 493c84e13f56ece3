"""Feishu and Lark, by webhook or by a connection that we hold."""

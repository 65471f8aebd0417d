"""The explorer's server: one port, JSON and Arrow tiles (docs/http-api.md), the page. Start at `app.create_app`."""

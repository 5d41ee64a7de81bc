"""The page of a space-time diagram: markup, style and script, put together by `page_html`."""

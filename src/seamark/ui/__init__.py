"""The page: stores and checkpoint directories in a browser. It reads, and changes nothing.

``seamark ui`` serves it; :class:`seamark.ui.server.PageServer` does so from inside another process.
Needs the extra ``ui``, which is loaded only when a page is served.
"""

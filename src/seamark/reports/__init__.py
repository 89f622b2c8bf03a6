"""What there is to say about stores and directories, as documents of JSON values.

The commands print them, the page shows them, and both give the same facts. Nothing here writes, the
probes of ``store_health`` aside. Secrets are hidden by whoever shows a document.
"""

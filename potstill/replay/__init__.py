"""Makes what was published again, from the recorded inputs and by the worker's own program, and compares the bytes.

Nothing of the worker is imported: its computing process is started as the worker starts it, and spoken to in JSON.
"""

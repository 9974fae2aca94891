"""How integer operations are spelled. An emitter is a class; a vendor overrides single methods of one."""

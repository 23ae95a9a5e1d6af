"""Every decoder against damaged input: it answers or raises its documented error, within bounds of time and memory."""

//go:build unix && !linux

package supervise

// dieWithParent does nothing: only Linux can. The watchdog sees the supervisor end.
func dieWithParent() {}

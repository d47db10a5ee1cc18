package netfault

// Connections is the number of the link's connections, including those that wait for the end
// of a cut.
func (l *Link) Connections() int { return len(l.present()) }

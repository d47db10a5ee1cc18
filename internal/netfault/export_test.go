package netfault

// Connections is how many connections the link has, those that wait for the end
// of a cut included.
func (l *Link) Connections() int { return len(l.present()) }

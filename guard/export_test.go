package guard

// Lines returns for how many resources g keeps anything.
func Lines[Tx any](g *Guard[Tx]) int {
	g.keeper.mu.Lock()
	defer g.keeper.mu.Unlock()
	return len(g.keeper.lines)
}

// Doubts returns for how many leases of callers g keeps what is in doubt.
func Doubts[Tx any](g *Guard[Tx]) int {
	g.keeper.mu.Lock()
	defer g.keeper.mu.Unlock()
	return len(g.keeper.doubts)
}

// ExpireLate is what a timer does that fired just before the latest call for a
// resource and was held up until after it.
func ExpireLate[Tx any](g *Guard[Tx], resource string) {
	g.keeper.mu.Lock()
	l := g.keeper.lines[resource]
	g.keeper.mu.Unlock()
	g.keeper.expire(expiredOwnership{l, l.ownership})
}

// Limits of what calls and options may hold.
const (
	MaxResources = maxResources
	MaxResultLen = maxResultLen
	MaxOpIDLen   = maxOpIDLen
)

package guard

// Lines returns for how many resources g keeps anything.
func Lines[Tx any](g *Guard[Tx]) int {
	g.keeper.mu.Lock()
	defer g.keeper.mu.Unlock()
	return len(g.keeper.lines)
}

// Doubts returns for how many resources g keeps what is in doubt under grants of callers.
func Doubts[Tx any](g *Guard[Tx]) int {
	g.keeper.mu.Lock()
	defer g.keeper.mu.Unlock()
	return len(g.keeper.doubts)
}

// ExpireLate is what a timer does that fired just before the latest call and was held up
// until after it.
func ExpireLate[Tx any](g *Guard[Tx]) {
	g.keeper.expire()
}

// Limits of what calls and options may hold.
const (
	MaxResources = maxResources
	MaxResultLen = maxResultLen
	MaxOpIDLen   = maxOpIDLen
	MaxSeen      = maxSeen
)

// MaxUnderWay returns how many groups of g may be under way when a call begins another one.
func MaxUnderWay[Tx any](g *Guard[Tx]) int { return g.forming.limit }

// Limits of groups of calls on different resources.
const (
	MaxBatchCalls = maxBatchCalls
	Patience      = patience
)

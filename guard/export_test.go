package guard

// Lines returns for how many resources g keeps anything.
func Lines[Tx any](g *Guard[Tx]) int {
	g.keeper.mu.Lock()
	defer g.keeper.mu.Unlock()
	return len(g.keeper.lines)
}

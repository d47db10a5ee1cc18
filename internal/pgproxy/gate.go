package pgproxy

import "sync"

// gate lets messages of one direction through, or keeps them waiting.
type gate struct {
	mu   sync.Mutex
	open chan struct{} // closed while the gate is open; nil means open too
}

// wait returns when the gate is open; it reports false if closed came first.
func (g *gate) wait(closed <-chan struct{}) bool {
	g.mu.Lock()
	open := g.open
	g.mu.Unlock()
	if open == nil {
		return true
	}
	select {
	case <-open:
		return true
	case <-closed:
		return false
	}
}

func (g *gate) pause() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.open == nil {
		g.open = make(chan struct{})
	}
}

func (g *gate) resume() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.open != nil {
		close(g.open)
		g.open = nil
	}
}

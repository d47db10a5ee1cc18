package pgproxy

import (
	"context"
	"regexp"

	"github.com/jackc/pgx/v5/pgproto3"
)

// commitWord is COMMIT as a word, wherever it stands: also after other
// statements of one message, and, harmlessly for tests, in a literal.
var commitWord = regexp.MustCompile(`(?i)\bcommit\b`)

// OnCommit sets the rule for statements that contain the word COMMIT, in any
// case: the SQL of a Query message, or of the statement that an Execute runs.
// It replaces the rule before; nil removes it. Calls of the rule don't overlap;
// it must not call the Proxy.
func (p *Proxy) OnCommit(rule func(sql string) *Action) {
	if rule == nil {
		p.OnQuery(nil)
		return
	}
	p.OnQuery(func(sql string) *Action {
		if !commitWord.MatchString(sql) {
			return nil
		}
		return rule(sql)
	})
}

// OnQuery sets the rule for all statements; otherwise it is as OnCommit, which
// it replaces.
func (p *Proxy) OnQuery(rule func(sql string) *Action) {
	p.ruleMu.Lock()
	defer p.ruleMu.Unlock()
	p.rule = rule
}

// Reserve reserves the rule among independent callers, and waits while another has it. The
// caller must call free. It fails when ctx ends first.
func (p *Proxy) Reserve(ctx context.Context) (free func(), err error) {
	free = func() { <-p.reserved }
	select {
	case p.reserved <- struct{}{}:
		return free, nil
	default:
	}
	select {
	case p.reserved <- struct{}{}:
		return free, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// decide asks the rule and returns the Action that is to act, or nil.
func (p *Proxy) decide(sql string) *Action {
	p.ruleMu.Lock()
	defer p.ruleMu.Unlock()
	if p.rule == nil {
		return nil
	}
	if a := p.rule(sql); a.claim() {
		return a
	}
	return nil
}

// statements knows the SQL of a session's prepared statements and portals.
type statements struct {
	prepared map[string]string
	portals  map[string]string
}

func newStatements() *statements {
	return &statements{map[string]string{}, map[string]string{}}
}

// runs notes what a client's message prepares and returns the SQL that it has
// the server run, if it does.
func (s *statements) runs(m message) (sql string, ok bool, err error) {
	switch m.kind() {
	case typeQuery:
		var q pgproto3.Query
		err = q.Decode(m.body())
		return q.String, true, err
	case typeParse:
		var p pgproto3.Parse
		err = p.Decode(m.body())
		s.prepared[p.Name] = p.Query
	case typeBind:
		var b pgproto3.Bind
		err = b.Decode(m.body())
		s.portals[b.DestinationPortal] = s.prepared[b.PreparedStatement]
	case typeExecute:
		var e pgproto3.Execute
		err = e.Decode(m.body())
		return s.portals[e.Portal], true, err
	}
	return "", false, err
}

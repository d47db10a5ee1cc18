package postgres_test

import (
	"errors"
	"fmt"
	"maps"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/storage/postgres/internal/wire"
)

// errDoubt is the error of a COMMIT whose outcome is unknown.
var errDoubt = errors.New("the outcome is in doubt")

// sent sends a message that ends a transaction.
func sent(s *schedule, conn *pgx.Conn, message string) (answer *wire.Answer, committed bool, err error) {
	answer, outcome, err := wire.Send(s.ctx, conn.PgConn(), message)
	if outcome == wire.InDoubt {
		err = errDoubt
	}
	return answer, outcome == wire.Committed, err
}

// send delivers the COMMIT of a run and updates the expected state by its outcome. h is the
// holder that waits for the answer, nil if none does.
func (s *schedule) send(r *run, h *holder, then func(committed bool, err error)) {
	var committed bool
	var err error
	start := s.start
	if h != nil {
		start = h.start
	}
	start(r.conn, func() { _, committed, err = sent(s, r.conn, r.commit) }, func() {
		s.db.release(s, r.conn)
		if committed || err == errDoubt && s.db.wrote(s, r) {
			s.hasCommitted(r)
		}
		then(committed, err)
	})
}

// deliver lets a late COMMIT arrive.
func (s *schedule) deliver() {
	if len(s.late) > 0 {
		s.deliverAt(s.upTo(len(s.late)-1, "late"))
	}
}

func (s *schedule) deliverAt(i int) {
	r := s.late[i]
	s.late = append(s.late[:i:i], s.late[i+1:]...)
	s.Logf("the COMMIT of %v arrives late", r)
	s.send(r, nil, func(committed bool, err error) {
		if committed {
			s.seen["late COMMIT applied"]++
		} else {
			s.Logf("... and fails with %v", err)
			s.seen["late COMMIT rejected"]++
		}
	})
}

// open are the backends that have a transaction open, and don't wait.
func (s *schedule) open() (pids []uint32) {
	for _, h := range s.holders {
		if conn := h.conn(); conn != nil {
			pids = append(pids, conn.PgConn().PID())
		}
	}
	for _, r := range s.late {
		pids = append(pids, r.conn.PgConn().PID())
	}
	return pids
}

func (s *schedule) killOne() {
	if open := s.open(); len(open) > 0 {
		s.Logf("a backend is killed")
		require.NoError(s, s.db.kill(s.ctx, open[s.upTo(len(open)-1, "backend")]))
		s.seen["killed"]++
	}
}

func (s *schedule) save() {
	s.Logf("the database is saved")
	s.db.save(s)
	world := s.world.clone()
	s.backup = &world
}

// restore puts the database back. No transaction or request survives. Reads outside a
// transaction don't count any more: with the old volume their loss can't be noticed.
func (s *schedule) restore() {
	if s.backup == nil || maps.Equal(s.backup.applied, s.world.applied) {
		return // it would lose nothing
	}
	s.Logf("the database is restored")
	require.NoError(s, s.db.kill(s.ctx, s.open()...))
	for _, r := range s.late {
		s.db.release(s, r.conn)
	}
	s.late = nil
	s.db.restore(s)
	s.world = s.backup.clone()
	for _, h := range s.holders {
		for name, looked := range h.looked {
			if looked {
				delete(h.memory, name)
			}
		}
	}
	s.back = true
	s.seen["restored"]++
	// A holder without memory goes first, and takes the positions that others have seen.
	s.turn, s.left = s.holders[s.upTo(len(s.holders)-1, "restarted")], 6
	s.turn.forgetAll()
}

func (s *schedule) deleteHistory() {
	condition := fmt.Sprintf("seq %% %d = %d", s.upTo(2, "of each")+1, 0)
	s.Logf("history is deleted: %s", condition)
	s.db.deleteHistory(s, condition)
	s.pruned = true
	s.seen["history deleted"]++
}

package postgres_test

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/storage"
	"github.com/fencekit/fencekit/storage/postgres"
	"github.com/fencekit/fencekit/storage/postgres/internal/wire"
)

// holder does what a Guard does: it claims, runs transactions under its claims, and
// resolves what is in doubt before it goes on. It remembers what it read and wrote, as
// a Hold does.
type holder struct {
	s      *schedule
	name   string
	grants map[string]fence.Grant
	claims map[string]storage.Claim
	memory map[string]link
	looked map[string]bool // what it remembers was read outside a transaction

	claiming *run // its claim is open
	run      *run
	doubt    *run
	busy     bool // a call of it is under way
}

// run is a transaction, under claims or of a claim.
type run struct {
	conn   *pgx.Conn
	store  *postgres.Store
	id     storage.TxID
	claims []storage.Claim
	worked bool
	rests  map[string]link
	writes map[string]link
	key    *storage.OnceKey
	kept   []byte
	commit string
}

func (r *run) String() string { return fmt.Sprintf("transaction %d under %v", r.id, r.claims) }

func (h *holder) conn() *pgx.Conn {
	switch {
	case h.busy:
		return nil
	case h.claiming != nil:
		return h.claiming.conn
	case h.run != nil:
		return h.run.conn
	}
	return nil
}

func (h *holder) step() {
	s := h.s
	switch aside := s.upTo(14, "aside") == 14; {
	case h.busy:
	case h.doubt != nil && !aside:
		h.resolve()
	case h.doubt != nil:
	case h.claiming != nil:
		h.endClaim()
	case h.run == nil && (aside || len(h.claims) == 0 || len(h.claims) < len(s.resources) && s.upTo(2, "claim another") == 2):
		h.claim(h.toClaim())
	case h.run == nil && s.upTo(19, "look") == 19:
		h.look()
	case h.run == nil:
		h.begin()
	case aside:
		h.rollback()
	case !h.run.worked:
		h.work()
	default:
		h.commit()
	}
}

// toClaim is a resource that h hasn't claimed, or any.
func (h *holder) toClaim() string {
	s := h.s
	for _, r := range s.resources {
		if _, claimed := h.claims[r]; !claimed && s.upTo(2, "this one") > 0 {
			return r
		}
	}
	return s.resources[s.upTo(len(s.resources)-1, "resource")]
}

// letGo takes the step that ends what h has open.
func (h *holder) letGo() {
	switch {
	case h.claiming != nil:
		h.endClaim()
	case h.s.upTo(2, "let go") > 0:
		h.commit()
	default:
		h.rollback()
	}
}

// end ends what h has open.
func (h *holder) end() {
	if h.claiming != nil {
		h.endClaim()
	}
	if h.run != nil {
		h.rollback()
	}
	h.s.settle()
}

func (h *holder) settleDoubt() {
	if h.doubt != nil {
		h.resolve()
	}
}

// start is schedule.start for a call of h.
func (h *holder) start(conn *pgx.Conn, call func(), then func()) {
	h.busy = true
	h.s.start(conn, call, func() {
		h.busy = false
		then()
	})
}

// claim claims in one message, or leaves the claim's transaction open.
func (h *holder) claim(resource string) {
	s := h.s
	how, g := s.upTo(9, "how to claim"), h.grants[resource]
	r := &run{conn: s.db.acquire(s), store: s.db.stores[0]}
	s.Logf("%s claims %v (%d)", h.name, g, how)
	message, open := r.store.ClaimMessage(g, how < 4), how >= 8
	if open {
		message = r.store.OpenClaimMessage(g)
	}
	var answer *wire.Answer
	var committed bool
	var err error
	h.start(r.conn, func() { answer, committed, err = sent(s, r.conn, message) }, func() {
		var c storage.Claim
		var rejected *storage.RejectedError
		if err == nil || open && len(answer.Rows) > 0 {
			c, err = postgres.ReadClaim(g, answer)
			if !errors.As(err, &rejected) {
				require.NoError(s, err)
				r.claims = []storage.Claim{c}
			}
		}
		switch {
		case rejected != nil:
			h.claimRejected(g, err)
		case committed:
			if how < 4 {
				s.seen["claim evicted"]++
			}
			h.hasClaimed(c)
		case open && len(r.claims) > 0:
			h.claiming = r
			return
		default:
			h.claimRejected(g, err)
		}
		s.db.release(s, r.conn)
	})
}

// endClaim ends an open claim.
func (h *holder) endClaim() {
	s, r := h.s, h.claiming
	how := []string{"commit", "rollback"}[s.upTo(1, "end of the claim")]
	s.Logf("%s's open claim: %s", h.name, how)
	h.claiming = nil
	var committed bool
	h.start(r.conn, func() { _, committed, _ = sent(s, r.conn, how) }, func() {
		if committed && how == "commit" {
			h.hasClaimed(r.claims[0])
		} else {
			s.seen["claim rolled back"]++
		}
		s.db.release(s, r.conn)
	})
}

func (h *holder) hasClaimed(c storage.Claim) {
	h.s.Logf("%s has claimed %v", h.name, c)
	h.s.claimHasCommitted(c)
	if h.claims[c.Grant.Resource] != c {
		h.forget(c)
	}
	h.claims[c.Grant.Resource] = c
}

func (h *holder) claimRejected(g fence.Grant, err error) {
	s := h.s
	var rejected *storage.RejectedError
	if !errors.As(err, &rejected) {
		require.Contains(s, transient, stateOf(err), "%v", err)
		return
	}
	switch rejected.Reason {
	case storage.ReasonStale:
		require.Positive(s, s.world.claimed[g.Resource].Compare(g), "G5: %v was called stale", g)
		s.seen["claim stale"]++
	case storage.ReasonCollision:
		s.seen["claim collided"]++
	default:
		require.Equal(s, storage.ReasonEpochBehind, rejected.Reason)
	}
	h.grants[g.Resource] = s.issue(h, g.Resource)
}

// look reads outside any transaction, under the claims that h has.
func (h *holder) look() {
	s := h.s
	chains := s.db.chains(s)
	for _, r := range slices.Sorted(maps.Keys(h.claims)) {
		h.memory[r], h.looked[r] = chains[r], true
	}
	s.seen["from a look"]++
}

// begin begins a transaction under some of h's claims, and asks first for what is kept
// if it has a key.
func (h *holder) begin() {
	s := h.s
	r := &run{store: s.db.stores[s.upTo(len(levels)-1, "level")], rests: map[string]link{}, writes: map[string]link{}}
	r.id = s.db.newID()
	for _, name := range slices.Sorted(maps.Keys(h.claims)) {
		if len(r.claims) == 0 || s.upTo(3, "also under") > 0 {
			r.claims = append(r.claims, h.claims[name])
		}
	}
	r.conn = s.db.acquire(s)
	s.Logf("%s begins %v", h.name, r)
	if s.upTo(3, "with a key") == 3 && !h.recall(r) {
		s.db.release(s, r.conn)
		return
	}
	if _, err := r.conn.PgConn().Exec(s.ctx, r.store.BeginMessage(r.claims)).ReadAll(); err != nil {
		s.db.release(s, r.conn)
		h.afterFailure(r, err)
		return
	}
	h.run = r
}

// recall asks for what is kept under a key, which names the resources. It reports whether there is
// nothing, so that the operation has to run; what is found is the answer.
func (h *holder) recall(r *run) (nothing bool) {
	s := h.s
	r.key = &storage.OnceKey{Key: fmt.Sprintf("key %d of", s.upTo(1, "key"))}
	for _, c := range r.claims {
		r.key.Key += " " + c.Grant.Resource
	}
	answer, _, err := sent(s, r.conn, r.store.RecallMessage(*r.key, r.claims))
	require.NoError(s, err)
	result, found, err := postgres.ReadKept(*r.key, r.claims, answer.Rows)
	if err != nil { // a fence has moved since the claim
		h.forget(r.claims...)
		return false
	}
	if found {
		s.answered(r, string(result))
	}
	return !found
}

// work reads and writes the data of each resource. What h remembers it needn't read.
func (h *holder) work() {
	s, r := h.s, h.run
	for _, c := range r.claims {
		name := c.Grant.Resource
		if rest, ok := h.memory[name]; ok && s.upTo(3, "remember") > 0 {
			r.rests[name] = rest
			s.seen["from memory"]++
		}
	}
	merelyRead := s.upTo(9, "merely read") == 9
	var err error
	h.start(r.conn, func() { err = r.work(s, merelyRead) }, func() {
		if err != nil {
			h.rollback()
			h.afterFailure(r, err)
			return
		}
		r.worked = true
	})
}

func (r *run) work(s *schedule, merelyRead bool) error {
	for _, c := range r.claims {
		name := c.Grant.Resource
		if _, remembered := r.rests[name]; remembered {
			continue
		}
		var l link
		if err := r.conn.QueryRow(s.ctx, "select count, digest from chain where resource = $1", name).Scan(&l.Count, &l.Digest); err != nil {
			return err
		}
		r.rests[name] = l
	}
	if merelyRead {
		return nil
	}
	for _, c := range r.claims {
		name := c.Grant.Resource
		l := next(r.rests, r.id, name)
		if _, err := r.conn.Exec(s.ctx, "update chain set count = $2, digest = $3 where resource = $1", name, l.Count, l.Digest); err != nil {
			return err
		}
		r.writes[name] = l
	}
	return nil
}

func (h *holder) rollback() {
	h.s.db.release(h.s, h.run.conn)
	h.run = nil
}

// commit sends the COMMIT, or suffers what a network does to it.
func (h *holder) commit() {
	s, r := h.s, h.run
	r.kept = fmt.Append(nil, r.id)
	var err error
	r.commit, err = r.store.CommitMessage(r.id, r.claims, r.key, r.kept)
	require.NoError(s, err)
	r.commit += "; " + r.store.LookMessage(r.claims)
	h.run = nil
	switch fault := s.upTo(9, "fault"); {
	case fault < 6:
		s.send(r, h, func(committed bool, err error) { h.hears(r, committed, err) })
	case fault < 7:
		s.send(r, h, func(bool, error) { h.doubt = r })
		s.seen["reply lost"]++
	case fault < 8:
		s.Logf("the COMMIT of %v is lost", r)
		require.NoError(s, s.db.kill(s.ctx, r.conn.PgConn().PID()))
		s.db.release(s, r.conn)
		h.doubt = r
	default:
		s.Logf("the COMMIT of %v is late", r)
		s.late = append(s.late, r)
		h.doubt = r
	}
}

// hears draws the consequences of the answer to a COMMIT.
func (h *holder) hears(r *run, committed bool, err error) {
	switch {
	case committed:
		h.tookEffect(r)
	case err == errDoubt:
		h.doubt = r
	default:
		h.afterFailure(r, err)
	}
}

// tookEffect makes h go on from where its transaction has left data and fences.
func (h *holder) tookEffect(r *run) {
	for _, c := range postgres.MovedBy(r.id, r.claims) {
		h.claims[c.Grant.Resource] = c
	}
	for name, l := range r.rests {
		h.memory[name], h.looked[name] = l, false
	}
	maps.Copy(h.memory, r.writes)
}

// afterFailure updates what the holder expects after an operation has failed.
func (h *holder) afterFailure(r *run, err error) {
	s := h.s
	code := stateOf(err)
	s.Logf("%s fails with %v", r, err)
	switch code {
	case "ZF001":
		require.True(s, s.superseded(r.claims), "G5: %v was called stale", r)
		s.seen["stale"]++
	case "ZF002":
		s.seen["overtaken"]++
	case "ZF004":
		require.True(s, s.back, "the database never went back: %v", r)
		s.seen["went back"]++
	case "ZF006":
		s.seen["collision"]++
	case "40001":
		s.seen["conflict"]++
		fallthrough
	default:
		require.Contains(s, transient, code, "%v", err)
		return
	}
	h.forget(r.claims...)
}

// forget forgets claims, and what was read under them.
func (h *holder) forget(claims ...storage.Claim) {
	for _, c := range claims {
		delete(h.claims, c.Grant.Resource)
		delete(h.memory, c.Grant.Resource)
	}
}

func (h *holder) forgetAll() {
	h.claims, h.memory, h.looked = map[string]storage.Claim{}, map[string]link{}, map[string]bool{}
}

// resolve asks what became of a COMMIT, resource by resource until one knows.
func (h *holder) resolve() {
	s, r := h.s, h.doubt
	conn := s.db.acquire(s)
	var said string
	var err error
	h.start(conn, func() {
		for _, c := range r.claims {
			var answer *wire.Answer
			if answer, _, err = sent(s, conn, r.store.ResolveMessage(c, r.id)); err != nil {
				return
			}
			if said = answer.Rows[0][0]; said != "unknown" {
				return
			}
		}
	}, func() {
		s.db.release(s, conn)
		if err != nil {
			require.Contains(s, transient, stateOf(err), "%v", err)
			return
		}
		h.isTold(r, said)
	})
}

func (h *holder) isTold(r *run, said string) {
	s := h.s
	s.Logf("%v: %s", r, said)
	h.doubt = nil
	switch said {
	case "applied":
		require.True(s, s.world.applied[r.id], "G4: %v was said to have taken effect", r)
		h.tookEffect(r)
		s.seen["doubt applied"]++
		return
	case "not applied":
		require.False(s, s.world.applied[r.id], "G4: %v was said not to have taken effect", r)
		s.denied[r.id] = true
		s.seen["doubt not applied"]++
	default:
		require.True(s, s.pruned || s.back, "the outcome of %v should be known", r)
		s.seen["outcome pruned"]++
	}
	h.forget(r.claims...)
}

// transient are the failures that are not rejections: conflicts and lost connections.
var transient = []string{"40001", "40P01", "57P01", ""}

func stateOf(err error) string {
	var failure *pgconn.PgError
	if errors.As(err, &failure) {
		return failure.Code
	}
	return ""
}

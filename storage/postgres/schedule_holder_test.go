package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/internal/test/pgproxy"
	"github.com/fencekit/fencekit/storage"
	"github.com/fencekit/fencekit/storage/postgres"
)

// holder does what a Guard does: it claims, runs transactions under its claims, and resolves what is in doubt before it
// goes on. It remembers what it read and wrote, as a Hold does.
type holder struct {
	s      *schedule
	name   string
	grants map[string]fence.Grant
	seen   map[string]storage.Position // where its process last saw the fences
	claims map[string]storage.Claim
	memory map[string]link

	run   *run
	doubt *run
}

type run struct {
	number int
	txn    storage.Txn[pgx.Tx]
	pid    int
	claims []storage.Claim
	own    bool // its transaction makes the claims
	leased bool // under grants of the holder's
	killed bool
	worked bool
	rests  map[string]link
	writes map[string]link
	tx     storage.TxID // once COMMIT was sent
	held   *pgproxy.Action
}

func (r *run) String() string { return fmt.Sprintf("transaction %d under %v", r.number, r.claims) }

func (r *run) kind() string {
	switch {
	case r.leased:
		return "leased "
	case r.own:
		return "own "
	}
	return ""
}

func (h *holder) step() {
	s := h.s
	switch aside := s.upTo(14, "aside") == 14; {
	case h.doubt != nil && !aside:
		h.resolve()
	case h.doubt != nil:
	case h.run == nil && len(h.claims) < len(s.resources) && s.upTo(2, "by itself") == 2:
		h.beginOwn()
	case h.run == nil && (aside || len(h.claims) == 0 || len(h.claims) < len(s.resources) && s.upTo(2, "claim another") == 2):
		h.claim(h.toClaim())
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

func (h *holder) toClaim() string {
	s := h.s
	for _, r := range s.resources {
		if _, claimed := h.claims[r]; !claimed && s.upTo(2, "this one") > 0 {
			return r
		}
	}
	return s.resources[s.upTo(len(s.resources)-1, "resource")]
}

// claim claims, mostly without an eviction: then the fence alone rejects earlier grants.
func (h *holder) claim(resource string) {
	s, g := h.s, h.grants[resource]
	if s.locked(storage.Claim{Grant: g}) {
		return
	}
	store := s.db.quiet
	if s.upTo(4, "evict") == 4 {
		store = s.db.evicting
		s.seen["claim evicted"]++
	}
	claims, err := store.Claim(s.ctx, storage.Claim{Grant: g, Position: h.seen[resource]})
	s.Logf("%s claims %v: %v %v", h.name, g, claims, err)
	rejected := new(storage.RejectedError)
	if !errors.As(err, &rejected) {
		require.NoError(s, err)
		s.hasClaimed(claims[0])
		if h.claims[resource] != claims[0] {
			h.forget(claims[0])
		}
		h.goesOnFrom(claims[0])
		return
	}
	s.seen["claim "+string(rejected.Reason)]++
	switch rejected.Reason {
	case storage.ReasonStale:
		require.Positive(s, s.world.claimed[resource].Compare(g), "G5: %v was called stale", g)
	case storage.ReasonWentBack:
		require.True(s, s.back || s.pruned, "the database never went back: %v", err)
		delete(h.seen, resource)
	default:
		require.Contains(s, []storage.Reason{storage.ReasonCollision, storage.ReasonEpochBehind}, rejected.Reason)
	}
	h.grants[resource] = s.issue(h, resource)
}

func (h *holder) goesOnFrom(claims ...storage.Claim) {
	for _, c := range claims {
		h.claims[c.Grant.Resource], h.seen[c.Grant.Resource] = c, c.Position
	}
}

func (h *holder) begin() {
	s := h.s
	store := s.db.stores[s.upTo(len(levels)-1, "level")]
	s.runs++
	r := &run{number: s.runs, rests: map[string]link{}, writes: map[string]link{}}
	for _, name := range slices.Sorted(maps.Keys(h.claims)) {
		if len(r.claims) == 0 || s.upTo(3, "also under") > 0 {
			r.claims = append(r.claims, h.claims[name])
		}
	}
	s.Logf("%s begins %v", h.name, r)
	var err error
	r.txn, err = store.Begin(s.ctx, r.claims...)
	require.NoError(s, err)
	h.run = r
	h.does(func(ctx context.Context, tx pgx.Tx) error { return tx.QueryRow(ctx, backend).Scan(&r.pid) })
}

// beginOwn claims what the holder hasn't kept within the transaction.
func (h *holder) beginOwn() {
	s := h.s
	s.runs++
	r := &run{number: s.runs, own: true, leased: s.upTo(1, "under leases") > 0, rests: map[string]link{}, writes: map[string]link{}}
	var seen []storage.Claim
	left := false
	for _, name := range s.resources {
		if _, kept := h.claims[name]; !kept && (seen == nil || s.upTo(1, "also") > 0) {
			g, last := fence.Grant{Resource: name, Holder: fmt.Sprint("own ", s.runs)}, s.world.claimed[name]
			if r.leased {
				g = h.grants[name]
				left = left || last.Token == 0 || g.Compare(last) <= 0 || g.Epoch != last.Epoch || g.Epoch != s.epoch
			}
			seen = append(seen, storage.Claim{Grant: g, Position: h.seen[name]})
		}
	}
	locked, store := s.locked(seen...), s.db.stores[0]
	if locked {
		store = s.db.impatient
	}
	txn, claims, err := store.BeginOwn(s.ctx, ownLimit, seen...)
	s.Logf("%s begins to claim %v by itself: %v %v", h.name, seen, claims, err)
	rejected := new(storage.RejectedError)
	switch {
	case err == storage.ErrBusy && !r.leased, locked && errors.As(err, new(*postgres.TransientError)): // its connections are as impatient
		require.True(s, locked, "nothing has the fences locked")
		s.seen["own busy"]++
	case err == storage.ErrHeld:
		under := slices.ContainsFunc(s.open(), func(r *run) bool { return !r.own })
		require.True(s, under || left || locked && r.leased, "no transaction is open under the fence's grant")
		s.seen[r.kind()+"held"]++
	case errors.As(err, &rejected):
		require.Equal(s, storage.ReasonWentBack, rejected.Reason)
		require.True(s, s.back || s.pruned, "the database never went back: %v", err)
		delete(h.seen, rejected.Grant.Resource)
	default:
		require.NoError(s, err)
		r.txn, r.claims = txn, claims
		h.run = r
		require.False(s, locked, "G1: another transaction has the fences locked")
		h.does(func(ctx context.Context, tx pgx.Tx) error { return tx.QueryRow(ctx, backend).Scan(&r.pid) })
	}
}

func (h *holder) does(op storage.Func[pgx.Tx]) (done bool) {
	r := h.run
	if err := r.txn.Run(h.s.ctx, op); err != nil {
		h.rollback()
		h.failed(r, err)
		return false
	}
	return true
}

func (h *holder) work() {
	s, r := h.s, h.run
	for _, c := range r.claims {
		name := c.Grant.Resource
		if rest, ok := h.memory[name]; ok && !r.own && s.upTo(3, "remember") > 0 {
			r.rests[name] = rest
			s.seen["from memory"]++
		}
	}
	merelyRead := s.upTo(9, "merely read") == 9
	r.worked = h.does(func(ctx context.Context, tx pgx.Tx) error {
		for _, c := range r.claims {
			if _, remembered := r.rests[c.Grant.Resource]; remembered {
				continue
			}
			rest, err := lastLink(ctx, tx, c.Grant.Resource)
			if err != nil {
				return err
			}
			r.rests[c.Grant.Resource] = rest
		}
		if merelyRead {
			return nil
		}
		for _, c := range r.claims {
			l := next(r, c.Grant.Resource)
			if err := statement("insert into link (resource, count, digest) values ($1, $2, $3)", c.Grant.Resource, l.Count, l.Digest)(ctx, tx); err != nil {
				return err
			}
			r.writes[c.Grant.Resource] = l
		}
		return nil
	})
}

func (h *holder) rollback() {
	if h.run != nil {
		h.run.txn.Rollback(context.Background())
		h.run = nil
	}
}

func (h *holder) commit() {
	s, r := h.s, h.run
	if !r.own && s.locked(r.claims...) {
		return
	}
	h.run = nil
	var fault *pgproxy.Action
	kind := s.upTo(9, "fault")
	switch kind {
	case 6:
		fault = pgproxy.SwallowReply()
	case 7:
		fault = pgproxy.SwallowCommit()
	case 8, 9:
		fault = pgproxy.HoldCommit()
	}
	moved, faulty, err := s.db.commit(s, r, fault)
	s.Logf("%s commits %v (%d): %v", h.name, r, kind, err)
	doubt := new(storage.InDoubtError)
	switch {
	case err == nil:
		r.tx = moved[0].Tx
		require.True(s, s.hasCommitted(r), "G4: %v was acknowledged and isn't in the history", r)
		h.tookEffect(r)
	case errors.As(err, &doubt):
		r.tx, h.doubt = doubt.InDoubt.Tx, r
		switch {
		case faulty && kind > 7:
			r.held = fault
			s.late = append(s.late, r)
		case s.hasCommitted(r):
			s.seen["reply lost"]++
		case kind == 7:
			s.db.kill(s, r.pid) // which ends by itself some time
		}
	default:
		h.failed(r, err)
	}
}

func (h *holder) tookEffect(r *run) {
	for _, c := range r.claims {
		c.Seq, c.Tx, c.Own = c.Seq+1, r.tx, false
		if h.seen[c.Grant.Resource] = c.Position; !r.own || r.leased {
			h.goesOnFrom(c)
		}
	}
	if r.own && !r.leased {
		return
	}
	maps.Copy(h.memory, r.rests)
	maps.Copy(h.memory, r.writes)
}

func (h *holder) failed(r *run, err error) {
	s := h.s
	s.Logf("%v fails with %v", r, err)
	rejected := new(storage.RejectedError)
	if !errors.As(err, &rejected) {
		require.ErrorAs(s, err, new(*postgres.TransientError))
		s.seen["transient"]++
		return
	}
	s.seen[string(rejected.Reason)]++
	switch rejected.Reason {
	case storage.ReasonStale:
		require.True(s, s.superseded(r.claims), "G5: %v was called stale", r)
	case storage.ReasonWentBack:
		require.True(s, s.back, "the database never went back: %v", r)
	}
	h.forget(r.claims...)
}

func (h *holder) forget(claims ...storage.Claim) {
	for _, c := range claims {
		delete(h.claims, c.Grant.Resource)
		delete(h.memory, c.Grant.Resource)
	}
}

func (h *holder) forgetAll() {
	h.claims, h.memory = map[string]storage.Claim{}, map[string]link{}
}

func (h *holder) resolve() {
	s, r := h.s, h.doubt
	if s.locked(r.claims...) {
		_, err := s.db.impatient.Resolve(s.ctx, storage.InDoubt{Claims: r.claims, Tx: r.tx})
		if err != nil || slices.Contains(s.open(), r) {
			require.ErrorContains(s, err, "55P03", "G4: the transaction that has the fence locked may commit")
			s.seen["own in doubt waits"]++
			return
		}
		// A fence before the locked one has decided.
	}
	applied, err := s.db.quiet.Resolve(s.ctx, storage.InDoubt{Claims: r.claims, Tx: r.tx})
	s.Logf("%v took effect: %v (%v)", r, applied, err)
	h.doubt = nil
	switch {
	case errors.Is(err, postgres.ErrPruned):
		require.True(s, s.pruned || s.back, "the outcome of %v should be known", r)
		s.seen["outcome pruned"]++
	case applied:
		require.True(s, s.world.applied[r.number], "G4: %v was said to have taken effect", r)
		h.tookEffect(r)
		s.seen["doubt applied"]++
		return
	default:
		require.NoError(s, err)
		require.False(s, s.world.applied[r.number], "G4: %v was said not to have taken effect", r)
		s.denied[r.number] = true
		s.seen["doubt not applied"]++
	}
	h.forget(r.claims...)
}

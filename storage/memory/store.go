package memory

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/guard"
)

// Store is a guard.Store and a guard.History. Use NewStore. All methods may be
// called from several goroutines.
type Store struct {
	mu        sync.Mutex
	data      map[string]string
	ids       map[string]int64 // by name; resources[id-1] is the resource
	resources []*resource
	highest   standing // the first grant of the highest epoch seen
	late      []*Txn   // COMMITs that are under way, see Deliver
	open      int      // transactions that have not ended
	faults    Faults
}

var (
	_ guard.Store[*Tx] = (*Store)(nil)
	_ guard.History    = (*Store)(nil)
)

// resource is a fence with its history.
type resource struct {
	name     string
	fence    standing
	entries  []guard.Entry // entries[i] has Seq i+1
	refusals []*guard.RefusalRecord
	kept     map[string]kept // by key of Once
}

// standing is where a fence stands, and since when its grant has held it.
type standing struct {
	fence.Grant
	guard.Position
	since time.Time
}

// NewStore returns an empty Store.
func NewStore() *Store {
	return &Store{data: map[string]string{}, ids: map[string]int64{}}
}

// Read returns the committed value of key, and "" if there is none.
func (s *Store) Read(key string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.data[key]
}

// Open returns how many transactions have neither been committed nor rolled back.
// Whoever leaves one open would leave a connection and locks behind.
func (s *Store) Open() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.open
}

// Claim implements guard.Store.
func (s *Store) Claim(ctx context.Context, grant fence.Grant) (guard.Claim, error) {
	if err := grant.Validate(); err != nil {
		return guard.Claim{}, err
	}
	faults := s.currentFaults()
	if err := before(ctx, faults.Claim, grant); err != nil {
		return guard.Claim{}, fmt.Errorf("memory: claim: %w", err)
	}
	claim, err := s.claim(grant)
	if err != nil {
		return guard.Claim{}, err
	}
	if faults.ClaimReply != nil {
		if err := faults.ClaimReply(grant); err != nil {
			return guard.Claim{}, fmt.Errorf("memory: claim: %w", err)
		}
	}
	return claim, nil
}

func (s *Store) claim(grant fence.Grant) (guard.Claim, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.resource(grant.Resource)
	order := grant.Compare(r.fence.Grant)
	switch {
	case grant.Epoch < s.highest.Epoch:
		return guard.Claim{}, r.refuse(guard.ReasonEpochBehind, guard.StageClaim, grant, s.highest)
	case order < 0:
		return guard.Claim{}, r.refuse(guard.ReasonStale, guard.StageClaim, grant, r.fence)
	case order == 0 && grant != r.fence.Grant:
		return guard.Claim{}, r.refuse(guard.ReasonCollision, guard.StageClaim, grant, r.fence)
	case order > 0:
		r.move(grant, newTxID(), guard.KindClaim, nil)
	}
	if grant.Epoch > s.highest.Epoch {
		s.highest = r.fence
	}
	return s.claimOf(r), nil
}

// Begin implements guard.Store. The check of the head only spares a transaction
// that can't commit any more its work; the seal is the safety.
func (s *Store) Begin(ctx context.Context, claims ...guard.Claim) (guard.Txn[*Tx], error) {
	faults := s.currentFaults()
	if err := before(ctx, faults.Begin, claims); err != nil {
		return nil, fmt.Errorf("memory: begin: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.validate(claims); err != nil {
		return nil, err
	}
	if err := s.checkHead(claims); err != nil {
		return nil, err
	}
	s.open++
	return &Txn{store: s, claims: claims, id: newTxID(), writes: map[string]*string{}, keep: map[string]kept{}}, nil
}

// Resolve implements guard.Store. Any one of the claims decides, since a seal
// moves the fences of all of them or of none.
func (s *Store) Resolve(ctx context.Context, d guard.InDoubt) (applied bool, err error) {
	faults := s.currentFaults()
	if err := before(ctx, faults.Resolve, d); err != nil {
		return false, fmt.Errorf("memory: resolve: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.validate(d.Claims); err != nil {
		return false, err
	}
	c := d.Claims[0]
	r := s.resources[c.Resource-1]
	if _, refused := r.judge(c); !refused {
		r.move(c.Grant, newTxID(), guard.KindVoid, nil)
		return false, nil
	}
	if c.Seq >= int64(len(r.entries)) {
		return false, r.refuse(guard.ReasonWentBack, guard.StageSeal, c.Grant, r.fence)
	}
	return r.entries[c.Seq].Tx == d.Tx, nil
}

// seal moves the fences of all of t's claims on and applies its writes, or does
// nothing (G2). It returns the claims at their new positions.
func (s *Store) seal(t *Txn, ops []guard.OpRecord) ([]guard.Claim, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.check(t.claims, guard.StageSeal); err != nil {
		return nil, err
	}
	moved := make([]guard.Claim, len(t.claims))
	for i, c := range t.claims {
		r := s.resources[c.Resource-1]
		r.move(c.Grant, t.id, guard.KindWrite, ops)
		maps.Copy(r.kept, t.keep)
		moved[i] = s.claimOf(r)
	}
	for key, value := range t.writes {
		if value == nil {
			delete(s.data, key)
		} else {
			s.data[key] = *value
		}
	}
	return moved, nil
}

// checkHead refuses claims whose grants the fences are not at. It leaves positions to
// the seal, as a database does whose head takes no lock: what a caller does about an
// overtaken claim must not rest on the head.
func (s *Store) checkHead(claims []guard.Claim) error {
	here := slices.Clone(claims)
	for i, c := range here {
		here[i].Position = s.resources[c.Resource-1].fence.Position
	}
	return s.check(here, guard.StageHead)
}

// check refuses claims whose fence is not exactly where the claim says.
func (s *Store) check(claims []guard.Claim, stage guard.Stage) error {
	for _, c := range claims {
		r := s.resources[c.Resource-1]
		if reason, refused := r.judge(c); refused {
			return r.refuse(reason, stage, c.Grant, r.fence)
		}
	}
	return nil
}

// validate reports claims that this store can't have made.
func (s *Store) validate(claims []guard.Claim) error {
	if len(claims) == 0 {
		return fmt.Errorf("memory: no claims: %w", guard.ErrInvalid)
	}
	seen := map[int64]bool{}
	for _, c := range claims {
		if c.Resource < 1 || c.Resource > int64(len(s.resources)) || s.resources[c.Resource-1].name != c.Grant.Resource {
			return fmt.Errorf("memory: claim of %q is not from this store: %w", c.Grant.Resource, guard.ErrInvalid)
		}
		if seen[c.Resource] {
			return fmt.Errorf("memory: two claims of %q: %w", c.Grant.Resource, guard.ErrInvalid)
		}
		seen[c.Resource] = true
	}
	return nil
}

// resource returns the resource of that name, which it creates if need be.
func (s *Store) resource(name string) *resource {
	id, ok := s.ids[name]
	if !ok {
		s.resources = append(s.resources, &resource{name: name, kept: map[string]kept{}})
		id = int64(len(s.resources))
		s.ids[name] = id
	}
	return s.resources[id-1]
}

// claimOf returns the claim of whom r's fence is at.
func (s *Store) claimOf(r *resource) guard.Claim {
	return guard.Claim{Grant: r.fence.Grant, Resource: s.ids[r.name], Position: r.fence.Position}
}

// judge says why c may not move the fence, if it may not.
func (r *resource) judge(c guard.Claim) (reason guard.Reason, refused bool) {
	order := c.Grant.Compare(r.fence.Grant)
	switch {
	case c.Grant == r.fence.Grant && c.Position == r.fence.Position:
		return "", false
	case order < 0:
		return guard.ReasonStale, true
	case order == 0 && c.Grant != r.fence.Grant:
		return guard.ReasonCollision, true
	case order == 0 && c.Seq < r.fence.Seq:
		return guard.ReasonOvertaken, true
	}
	return guard.ReasonWentBack, true
}

// move takes the next position and writes its entry.
func (r *resource) move(grant fence.Grant, tx guard.TxID, kind guard.EntryKind, ops []guard.OpRecord) {
	now := time.Now()
	if kind == guard.KindClaim {
		r.fence.since = now
	}
	r.fence.Grant = grant
	r.fence.Position = guard.Position{Seq: r.fence.Seq + 1, Tx: tx}
	e := guard.Entry{Grant: grant, Position: r.fence.Position, Kind: kind, Ops: cloneOps(ops), At: now}
	var before []byte
	if n := len(r.entries); n > 0 {
		before = r.entries[n-1].Hash
	}
	e.Hash = chain(before, e)
	r.entries = append(r.entries, e)
}

// newTxID returns a random number that is not zero.
func newTxID() guard.TxID {
	return guard.TxID(1 + rand.Int64N(1<<63-1))
}

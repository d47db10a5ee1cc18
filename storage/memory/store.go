// Package memory is the reference [storage.Store]: fences, history and a small key-value map in memory. It is the
// protocol in its shortest form.
//
// A resource has one fence: the grant that it was raised to, and a [storage.Position]. Claims, seals and voids are
// the only moves. Each takes the next position, under one lock, and writes its history entry.
//
//   - G1: [Store.Claim] has moved the fence when it returns.
//   - G2: a seal moves the fences of all its claims if each is exactly where its claim says, else none.
//   - G3 follows: a claim takes a position, so no earlier claim matches the fence any more.
//   - G4: [Store.Resolve] takes the position that the seal in doubt was to take, or reads which transaction has it.
//   - G13: a read-only transaction moves nothing. Its Commit checks each fence after all reads.
//   - G5: a rejection is counted in a record of its own and never moves a fence.
//
// Transactions read what is committed at the moment of the read, and their own writes. Nothing blocks: if two
// transactions of one resource overlap, the later seal is rejected. [Store.SetFaults] loses replies and delays
// COMMITs.
package memory

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/storage"
)

// Store is a storage.Store and a storage.History. Use NewStore. It is safe for concurrent use.
type Store struct {
	mu        sync.Mutex // also guards its transactions
	data      map[string]string
	resources []*resource
	byName    map[string]*resource
	highest   fenceState // first grant of the highest epoch
	late      []*Txn
	open      int
	faults    Faults
}

var (
	_ storage.Store[*Tx] = (*Store)(nil)
	_ storage.History    = (*Store)(nil)
)

type resource struct {
	name       string
	number     int64
	fence      fenceState
	entries    []storage.Entry
	rejections []*storage.Rejection
	kept       map[string]storage.Kept
}

type fenceState struct {
	fence.Grant
	storage.Position
	since time.Time
}

// NewStore returns an empty Store.
func NewStore() *Store {
	return &Store{data: map[string]string{}, byName: map[string]*resource{}}
}

// Read returns the committed value of key, or "".
func (s *Store) Read(key string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.data[key]
}

// Open returns how many transactions are under way.
func (s *Store) Open() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.open
}

func (s *Store) Claim(ctx context.Context, seen ...storage.Claim) ([]storage.Claim, error) {
	if err := storage.CheckClaims(seen); err != nil {
		return nil, err
	}
	faults := s.currentFaults()
	for _, c := range seen {
		if err := before(ctx, faults.Claim, c.Grant); err != nil {
			return nil, fmt.Errorf("memory: claim: %w", err)
		}
	}
	claims := make([]storage.Claim, len(seen))
	var rejections []error
	for i, c := range seen {
		var err error
		if claims[i], err = s.claim(c.Grant, c.Position); err != nil {
			rejections = append(rejections, err)
		} else if err := before(context.WithoutCancel(ctx), faults.ClaimReply, c.Grant); err != nil {
			return nil, fmt.Errorf("memory: claim: %w", err)
		}
	}
	return claims, errors.Join(rejections...)
}

func (s *Store) claim(grant fence.Grant, seen storage.Position) (storage.Claim, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r, ok := s.byName[grant.Resource]
	if !ok {
		r = &resource{name: grant.Resource, number: int64(len(s.resources)) + 1, kept: map[string]storage.Kept{}}
		s.resources, s.byName[r.name] = append(s.resources, r), r
	}
	switch order := grant.Compare(r.fence.Grant); {
	case grant.Epoch < s.highest.Epoch:
		return storage.Claim{}, r.reject(storage.ReasonEpochBehind, storage.StageClaim, grant, s.highest)
	case order < 0:
		return storage.Claim{}, r.reject(storage.ReasonStale, storage.StageClaim, grant, r.fence)
	case order == 0 && grant != r.fence.Grant:
		return storage.Claim{}, r.reject(storage.ReasonCollision, storage.StageClaim, grant, r.fence)
	case !r.has(seen):
		return storage.Claim{}, r.reject(storage.ReasonWentBack, storage.StageClaim, grant, r.fence)
	case order > 0:
		r.move(grant, newTxID(), storage.KindClaim, nil)
	}
	if grant.Epoch > s.highest.Epoch {
		s.highest = r.fence
	}
	return r.claim(), nil
}

func (r *resource) has(p storage.Position) bool {
	return p.Seq == 0 || p.Seq <= int64(len(r.entries)) && r.entries[p.Seq-1].Tx == p.Tx
}

// Begin implements storage.Store. It rejects early what can't commit any more.
func (s *Store) Begin(ctx context.Context, claims ...storage.Claim) (storage.Txn[*Tx], error) {
	return s.begin(ctx, claims, false)
}

func (s *Store) BeginReadOnly(ctx context.Context, claims ...storage.Claim) (storage.Txn[*Tx], error) {
	return s.begin(ctx, claims, true)
}

func (s *Store) begin(ctx context.Context, claims []storage.Claim, readOnly bool) (storage.Txn[*Tx], error) {
	if err := before(ctx, s.currentFaults().Begin, claims); err != nil {
		return nil, fmt.Errorf("memory: begin: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.validate(claims); err != nil {
		return nil, err
	}
	// Positions don't count here. In a database the begin check takes no lock on the fence either.
	here := slices.Clone(claims)
	for i, c := range here {
		here[i].Position = s.resources[c.Resource-1].fence.Position
	}
	if err := s.check(here, storage.StageBegin); err != nil {
		return nil, err
	}
	s.open++
	return &Txn{store: s, claims: claims, id: newTxID(), writes: map[string]string{}, readOnly: readOnly}, nil
}

func (s *Store) Look(ctx context.Context, seen ...storage.Claim) ([]storage.Claim, error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("memory: look: %w", err)
	}
	if err := storage.CheckResources(seen); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	claims := make([]storage.Claim, len(seen))
	for i, c := range seen {
		r := s.byName[c.Grant.Resource]
		if r == nil || r.fence.Seq == 0 || !r.has(c.Position) {
			return nil, nil
		}
		claims[i] = r.claim()
		claims[i].Looked = true
	}
	return claims, nil
}

func (s *Store) Recall(ctx context.Context, key storage.OnceKey, claims ...storage.Claim) (result []byte, found bool, err error) {
	if err := ctx.Err(); err != nil {
		return nil, false, fmt.Errorf("memory: recall: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.validate(claims); err != nil {
		return nil, false, err
	}
	reused := error(nil)
	for _, c := range claims {
		k, ok := s.resources[c.Resource-1].kept[key.Key]
		if !ok {
			continue
		}
		if k.Key.Request != key.Request {
			reused = &storage.KeyReusedError{Resource: c.Grant.Resource, Key: key.Key}
		}
		result, found = slices.Clone(k.Result), true
	}
	if !found {
		return nil, false, nil
	}
	if err := cmp.Or(s.check(claims, storage.StageBegin), reused); err != nil {
		return nil, false, err
	}
	return result, true, nil
}

// Resolve implements storage.Store. Any claim decides: a seal moves all fences or none.
func (s *Store) Resolve(ctx context.Context, d storage.InDoubt) (applied bool, err error) {
	if err := before(ctx, s.currentFaults().Resolve, d); err != nil {
		return false, fmt.Errorf("memory: resolve: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.validate(d.Claims); err != nil {
		return false, err
	}
	c := d.Claims[0]
	r := s.resources[c.Resource-1]
	switch {
	case c.Check(r.fence.Grant, r.fence.Position) == "":
		r.move(c.Grant, newTxID(), storage.KindVoid, nil)
	case c.Seq >= int64(len(r.entries)):
		return false, r.reject(storage.ReasonWentBack, storage.StageSeal, c.Grant, r.fence)
	case r.entries[c.Seq].Tx == d.Tx:
		return true, nil
	}
	return false, d.Ended
}

func (s *Store) seal(t *Txn, moves []storage.Move) ([]storage.Claim, error) {
	if err := s.check(t.claims, storage.StageSeal); err != nil {
		return nil, err
	}
	moved := make([]storage.Claim, len(t.claims))
	for i, c := range t.claims {
		r := s.resources[c.Resource-1]
		var move storage.Move
		if len(moves) > 0 {
			move = moves[i]
		}
		r.move(c.Grant, t.id, storage.KindWrite, move.Ops)
		for _, k := range move.Kept {
			k.Result = slices.Clone(k.Result)
			r.kept[k.Key.Key] = k
		}
		moved[i] = r.claim()
	}
	maps.Copy(s.data, t.writes)
	return moved, nil
}

func (s *Store) check(claims []storage.Claim, stage storage.Stage) error {
	for _, c := range claims {
		r := s.resources[c.Resource-1]
		switch reason := c.Check(r.fence.Grant, r.fence.Position); {
		case reason != "" && c.Looked:
			return storage.ErrMoved
		case reason != "":
			return r.reject(reason, stage, c.Grant, r.fence)
		}
	}
	return nil
}

func (s *Store) validate(claims []storage.Claim) error {
	for _, c := range claims {
		if r := s.byName[c.Grant.Resource]; r == nil || r.number != c.Resource {
			return fmt.Errorf("memory: claim of %q is not from this store: %w", c.Grant.Resource, fence.ErrInvalid)
		}
	}
	return storage.CheckClaims(claims)
}

func (r *resource) claim() storage.Claim {
	return storage.Claim{Grant: r.fence.Grant, Resource: r.number, Position: r.fence.Position}
}

func (r *resource) move(grant fence.Grant, tx storage.TxID, kind storage.EntryKind, ops []storage.OpRecord) {
	now := time.Now()
	if kind == storage.KindClaim {
		r.fence.since = now
	}
	r.fence.Grant = grant
	r.fence.Position = storage.Position{Seq: r.fence.Seq + 1, Tx: tx}
	e := storage.Entry{Grant: grant, Position: r.fence.Position, Kind: kind, Ops: cloneOps(ops), At: now}
	if n := len(r.entries); n > 0 {
		e.Hash = r.entries[n-1].Hash
	}
	e.Hash = hashOf(e)
	r.entries = append(r.entries, e)
}

// newTxID is random, and never zero.
func newTxID() storage.TxID {
	return storage.TxID(1 + rand.Int64N(1<<63-1))
}

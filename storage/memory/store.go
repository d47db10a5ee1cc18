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

// Store is a storage.Store and a storage.History. Use NewStore. All methods may be
// called from several goroutines.
type Store struct {
	mu        sync.Mutex
	data      map[string]string
	ids       map[string]int64 // by name; resources[id-1] is the resource
	resources []*resource
	highest   fenceState // the first grant of the highest epoch seen
	late      []*Txn     // COMMITs that are under way, see Deliver
	open      int        // transactions that have not ended
	faults    Faults
}

var (
	_ storage.GroupStore[*Tx] = (*Store)(nil)
	_ storage.History         = (*Store)(nil)
)

// resource is a fence with its history.
type resource struct {
	name       string
	fence      fenceState
	entries    []storage.Entry // entries[i] has Seq i+1
	rejections []*storage.Rejection
	kept       map[string]storage.Kept // by key; for as long as the Store lasts
}

// fenceState is the grant that has a fence, the fence's position, and when the grant claimed it.
type fenceState struct {
	fence.Grant
	storage.Position
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

// Open returns how many transactions have neither been committed nor rolled back. In a
// database each of these would keep a connection and its locks.
func (s *Store) Open() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.open
}

// Claim implements storage.Store.
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
	r := s.resource(grant.Resource)
	order := grant.Compare(r.fence.Grant)
	switch {
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
	return s.claimOf(r), nil
}

// has reports whether the fence has made the move to a position; it has made that to the zero Position.
func (r *resource) has(p storage.Position) bool {
	return p.Seq == 0 || p.Seq <= int64(len(r.entries)) && r.entries[p.Seq-1].Tx == p.Tx
}

// Begin implements storage.Store. Its begin check only saves work, by rejecting early a
// transaction that can't commit any more; safety rests on the seal.
func (s *Store) Begin(ctx context.Context, claims ...storage.Claim) (storage.Txn[*Tx], error) {
	return s.begin(ctx, claims, false)
}

// BeginReadOnly implements storage.Store.
func (s *Store) BeginReadOnly(ctx context.Context, claims ...storage.Claim) (storage.Txn[*Tx], error) {
	return s.begin(ctx, claims, true)
}

func (s *Store) begin(ctx context.Context, claims []storage.Claim, readOnly bool) (storage.Txn[*Tx], error) {
	faults := s.currentFaults()
	if err := before(ctx, faults.Begin, claims); err != nil {
		return nil, fmt.Errorf("memory: begin: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.validate(claims); err != nil {
		return nil, err
	}
	if err := s.beginCheck(claims); err != nil {
		return nil, err
	}
	s.open++
	return &Txn{store: s, claims: claims, id: newTxID(), writes: map[string]string{}, readOnly: readOnly}, nil
}

// CanGroup implements storage.GroupStore.
func (s *Store) CanGroup() bool { return true }

// BeginGroup implements storage.GroupStore. Nothing here waits for a lock.
func (s *Store) BeginGroup(ctx context.Context, members func() []storage.Claim) (storage.Txn[*Tx], error) {
	if err := ctx.Err(); err != nil { // a call that has ended takes no others along
		return nil, fmt.Errorf("memory: begin: %w", err)
	}
	return s.Begin(ctx, members()...)
}

// Recall implements storage.Store.
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

// Resolve implements storage.Store. Any one of the claims decides, since a seal
// moves the fences of all of them or of none.
func (s *Store) Resolve(ctx context.Context, d storage.InDoubt) (applied bool, err error) {
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
	if c.Check(r.fence.Grant, r.fence.Position) == "" {
		r.move(c.Grant, newTxID(), storage.KindVoid, nil)
		return false, d.Ended
	}
	if c.Seq >= int64(len(r.entries)) {
		return false, r.reject(storage.ReasonWentBack, storage.StageSeal, c.Grant, r.fence)
	}
	if r.entries[c.Seq].Tx == d.Tx {
		return true, nil
	}
	return false, d.Ended
}

// seal moves the fences of all of t's claims on and applies its writes, or does
// nothing (G2). It returns the claims at their new positions.
func (s *Store) seal(t *Txn, moves []storage.Move) ([]storage.Claim, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
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
		moved[i] = s.claimOf(r)
	}
	maps.Copy(s.data, t.writes)
	return moved, nil
}

// beginCheck rejects claims whose grant no longer has the fence. It ignores positions, as the
// begin check of a database does, which takes no lock on the fence: a caller that handles
// overtaken claims must not rely on it.
func (s *Store) beginCheck(claims []storage.Claim) error {
	here := slices.Clone(claims)
	for i, c := range here {
		here[i].Position = s.resources[c.Resource-1].fence.Position
	}
	return s.check(here, storage.StageBegin)
}

// check rejects claims whose fence is not exactly where the claim says.
func (s *Store) check(claims []storage.Claim, stage storage.Stage) error {
	for _, c := range claims {
		r := s.resources[c.Resource-1]
		if reason := c.Check(r.fence.Grant, r.fence.Position); reason != "" {
			return r.reject(reason, stage, c.Grant, r.fence)
		}
	}
	return nil
}

// validate rejects claims that this store can't have made.
func (s *Store) validate(claims []storage.Claim) error {
	for _, c := range claims {
		if c.Resource < 1 || c.Resource > int64(len(s.resources)) || s.resources[c.Resource-1].name != c.Grant.Resource {
			return fmt.Errorf("memory: claim of %q is not from this store: %w", c.Grant.Resource, fence.ErrInvalid)
		}
	}
	return storage.CheckClaims(claims)
}

// resource returns the resource of that name, which it creates if need be.
func (s *Store) resource(name string) *resource {
	id, ok := s.ids[name]
	if !ok {
		s.resources = append(s.resources, &resource{name: name, kept: map[string]storage.Kept{}})
		id = int64(len(s.resources))
		s.ids[name] = id
	}
	return s.resources[id-1]
}

// claimOf returns the claim of the grant that has r's fence.
func (s *Store) claimOf(r *resource) storage.Claim {
	return storage.Claim{Grant: r.fence.Grant, Resource: s.ids[r.name], Position: r.fence.Position}
}

// move takes the next position and writes its entry.
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

// newTxID returns a random number that is not zero.
func newTxID() storage.TxID {
	return storage.TxID(1 + rand.Int64N(1<<63-1))
}

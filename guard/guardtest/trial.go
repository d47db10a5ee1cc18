package guardtest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/guard"
	"github.com/fencekit/fencekit/storage"
)

type moment string

// Between the last two the function has made its reads and writes.
const (
	beforeClaim moment = "superseded before its claim"
	beforeBegin moment = "superseded before its transaction began"
	beforeRun   moment = "superseded before the function in its transaction ran"
	beforeSeal  moment = "superseded before its COMMIT"
	never       moment = "not superseded"
)

// patience is shorter than the default StoreTimeout, so that the trial says why its claim failed.
const patience = 5 * time.Second

type trial[Tx any] struct {
	storage.Store[Tx]
	service  *LockService
	resource string
	moment   moment

	written *[]string // by the transactions of earlier trials

	mu         sync.Mutex
	claimed    []string
	waiting    string // a statement that has waited for the transaction
	superseded bool
	failure    error
}

func asProcess[Tx any](ctx context.Context, locker *Locker, names []string, store storage.Store[Tx], cfg *guard.Config, p Process[Tx],
	f func(ctx context.Context, p Process[Tx]) error) (err, leftBehind error) {
	g, err := guard.New(locker, store, cfg)
	if err != nil {
		return nil, err
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience)
		defer cancel()
		if err := g.Close(ctx); err != nil {
			leftBehind = fmt.Errorf("run returned and left a call of its Guard behind; let it wait for what it begins: %w", err)
		}
	}()
	p.Guard = g
	for _, name := range names {
		p.Grants = append(p.Grants, locker.service.grantAway(name, locker.label))
	}
	return f(ctx, p), nil
}

func (t *trial[Tx]) Claim(ctx context.Context, seen ...storage.Claim) ([]storage.Claim, error) {
	t.mu.Lock()
	for _, c := range seen {
		t.claimed = append(t.claimed, c.Grant.Resource)
	}
	t.mu.Unlock()
	if err := t.at(ctx, beforeClaim, seen); err != nil {
		return nil, err
	}
	return t.Store.Claim(ctx, seen...)
}

func (t *trial[Tx]) Begin(ctx context.Context, claims ...storage.Claim) (storage.Txn[Tx], error) {
	if err := t.at(ctx, beforeBegin, claims); err != nil {
		return nil, err
	}
	txn, err := t.Store.Begin(ctx, claims...)
	if err != nil {
		return nil, err
	}
	return &trialTxn[Tx]{Txn: txn, trial: t, claims: claims}, nil
}

type trialTxn[Tx any] struct {
	storage.Txn[Tx]
	trial  *trial[Tx]
	claims []storage.Claim
}

func (t *trialTxn[Tx]) Run(ctx context.Context, op storage.Op[Tx]) error {
	if err := t.trial.at(ctx, beforeRun, t.claims); err != nil {
		return err
	}
	store, ok := t.trial.Store.(interface {
		Watched(op storage.Op[Tx], tables *[]string, waiting func(statement string)) storage.Op[Tx]
	})
	if _, isFunc := op.(storage.Func[Tx]); ok && isFunc {
		op = store.Watched(op, t.trial.written, func(statement string) {
			t.trial.mu.Lock()
			defer t.trial.mu.Unlock()
			t.trial.waiting = statement
		})
	}
	return t.Txn.Run(ctx, op)
}

// Commit asks for the outcome if the answer is lost, since the successor's claim may cut the connection. If nothing
// was applied, another claim returns the rejection for run.
func (t *trialTxn[Tx]) Commit(ctx context.Context, moves []storage.Move) ([]storage.Claim, error) {
	if err := t.trial.at(ctx, beforeSeal, t.claims); err != nil {
		t.Rollback(ctx)
		return nil, err
	}
	claims, err := t.Txn.Commit(ctx, moves)
	var doubt *storage.InDoubtError
	if !errors.As(err, &doubt) {
		return claims, err
	}
	if applied, askErr := t.trial.Resolve(ctx, doubt.InDoubt); applied || askErr != nil {
		return nil, err
	}
	if _, rejection := t.trial.Store.Claim(ctx, t.claims...); rejection != nil {
		return nil, rejection
	}
	return nil, err
}

func (t *trial[Tx]) at(ctx context.Context, m moment, claims []storage.Claim) error {
	if m != t.moment || !slices.ContainsFunc(claims, func(c storage.Claim) bool { return c.Grant.Resource == t.resource }) {
		return nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if _, err := t.Store.Claim(ctx, storage.Claim{Grant: t.service.grantAway(t.resource, "guardtest-successor")}); err != nil {
		t.failure = fmt.Errorf("the successor could not claim; if run holds the last connection of a pool, give it one more: %w", err)
		return t.failure
	}
	t.superseded = true
	return nil
}

// overtake moves s's tokens above the fences of resources, as rejections name them; epoch and token may each need
// another try. The store rejects tokens above another lock service's, which would shut that service out.
func overtake[Tx any](ctx context.Context, s *LockService, store storage.Store[Tx], resources []string) error {
	for _, resource := range resources {
		var err error
		for range 4 {
			_, err = store.Claim(ctx, storage.Claim{Grant: s.grantAway(resource, "guardtest-first")})
			var rejection *storage.RejectedError
			if !errors.As(err, &rejection) {
				break
			}
			if rejection.Reason == storage.ReasonTokenJump {
				err = fmt.Errorf("a lock service with other tokens, such as etcd, has used this database; give the test one of its own: %w", err)
				break
			}
			s.SetEpoch(rejection.Current.Epoch)
			s.SetToken(rejection.Current.Token + 1)
		}
		if err != nil {
			return fmt.Errorf("the fence of %s can't be claimed: %w", resource, err)
		}
	}
	return nil
}

// grantAway grants without the lock, so that the holder doesn't see that it is superseded.
func (s *LockService) grantAway(resource, label string) fence.Grant {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.issue(resource, label)
}

// outlast waits until the clock has passed the tokens that s has issued, so that later LockServices issue higher
// ones. It gives up if a fence was far ahead of the clock.
func (s *LockService) outlast() {
	s.mu.Lock()
	ahead := s.next - clock()
	s.mu.Unlock()
	if ahead < fence.Token(time.Second/tick) {
		time.Sleep(time.Duration(ahead) * tick)
	}
}

package control

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// Grouper is a Lock whose recipe runs the work of several calls in one transaction.
type Grouper interface {
	Lock
	// Group is Do for work that may share its transaction with that of other calls of this
	// process.
	Group(ctx context.Context, pool *pgxpool.Pool, resource string, work Work) error
}

var groupMatching = Control{
	Name:   "group-matching",
	Title:  "Group commit that seals the fences that match",
	Recipe: "Runs waiting operations of several resources in one transaction, under etcd locks, raises a fence for each of them before, and moves all of the fences by one UPDATE at the end.",
	Flaw:   "It doesn't count the rows: of a holder that was superseded on one resource the UPDATE leaves that fence out, and the transaction commits what it wrote there.",
	Needs:  []Need{Etcd},
	Open: func(_ context.Context, s Servers, _ string) (Lock, error) {
		return openGroups(s, "group-matching", false, false)
	},
	Prepare: prepareFences,
}

var groupRerun = Control{
	Name:   "group-rerun",
	Title:  "Group commit that runs again when the outcome is unknown",
	Recipe: "Does the same, counts the rows, and runs the whole group once more when its COMMIT was not answered.",
	Flaw:   "The COMMIT took effect, and only its answer was lost: each operation of the group takes effect twice.",
	Needs:  []Need{Etcd},
	Open: func(_ context.Context, s Servers, _ string) (Lock, error) {
		return openGroups(s, "group-rerun", true, true)
	},
	Prepare: prepareFences,
}

// prepareFences makes the table of the fences: for each resource the highest token that has
// claimed it, and how often it was moved.
func prepareFences(ctx context.Context, pool *pgxpool.Pool) error {
	_, err := pool.Exec(ctx, "create table if not exists control_fence (resource text primary key, token bigint not null, position bigint not null)")
	return err
}

// groups is group commit under etcd's locks.
type groups struct {
	*etcdLock
	counts bool // the rows that the seal moved
	reruns bool // a group whose COMMIT was not answered

	mu      sync.Mutex
	waiting []*member
	busy    map[string]bool // resources of groups that run
}

// member is a call whose work is to be run in a group.
type member struct {
	ctx      context.Context
	pool     *pgxpool.Pool
	resource string
	work     Work
	done     chan error
}

// maxGroup bounds the members of a group.
const maxGroup = 16

func openGroups(s Servers, name string, counts, reruns bool) (Lock, error) {
	lock, err := openEtcd(s, name, func(ctx context.Context, m mutex) (Held, error) {
		token, err := m.createRevision(ctx)
		return fenced{m, token}, err
	})
	if err != nil {
		return nil, err
	}
	return &groups{etcdLock: lock.(*etcdLock), counts: counts, reruns: reruns, busy: map[string]bool{}}, nil
}

// Group implements Grouper.
func (g *groups) Group(ctx context.Context, pool *pgxpool.Pool, resource string, work Work) error {
	m := &member{ctx, pool, resource, work, make(chan error, 1)}
	g.mu.Lock()
	g.waiting = append(g.waiting, m)
	g.start()
	g.mu.Unlock()
	return <-m.done
}

// start starts a group of the calls that wait for resources which no other group has. The
// caller has locked g.mu.
func (g *groups) start() {
	var members, rest []*member
	for _, m := range g.waiting {
		if len(members) < maxGroup && !g.busy[m.resource] {
			members = append(members, m)
		} else {
			rest = append(rest, m)
		}
	}
	if len(members) == 0 {
		return
	}
	g.waiting = rest
	for _, m := range members {
		g.busy[m.resource] = true
	}
	go g.finish(members)
}

// finish runs a group, answers its members, and starts the next one.
func (g *groups) finish(members []*member) {
	errs, err := g.run(members[0].ctx, members)
	for i, m := range members {
		if err != nil {
			m.done <- err
		} else {
			m.done <- errs[i]
		}
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, m := range members {
		delete(g.busy, m.resource)
	}
	g.start()
}

// run runs a group while the resources of its members are locked. It returns the error of
// each member, or one for all.
func (g *groups) run(ctx context.Context, members []*member) (errs []error, err error) {
	var held []fenced
	defer func() {
		for _, h := range held {
			_ = h.Release(context.WithoutCancel(ctx)) // the outcome stays
		}
	}()
	for _, resource := range resourcesOf(members) {
		lock, err := g.Acquire(ctx, resource)
		if err != nil {
			return nil, fmt.Errorf("control: acquire %s: %w", resource, err)
		}
		held = append(held, lock.(fenced))
	}
	errs, err = transactGroup(ctx, members, held, g.counts)
	if g.reruns && errors.Is(err, ErrUnknown) {
		return transactGroup(ctx, members, held, g.counts)
	}
	return errs, err
}

// resourcesOf returns the resources of members in order, each once.
func resourcesOf(members []*member) (resources []string) {
	for _, m := range members {
		resources = append(resources, m.resource)
	}
	slices.Sort(resources)
	return slices.Compact(resources)
}

// transactGroup claims the fences, and runs the members in a transaction, each in a savepoint.
func transactGroup(ctx context.Context, members []*member, held []fenced, counts bool) ([]error, error) {
	pool := members[0].pool
	tokens, positions := map[string]int64{}, make([]int64, len(held))
	for i, h := range held {
		var err error
		if positions[i], err = h.claim(ctx, pool); err != nil {
			return nil, err
		}
		tokens[h.resource] = h.token
	}
	tx, err := pool.Begin(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { _ = tx.Rollback(context.WithoutCancel(ctx)) }() // after COMMIT it does nothing
	errs := make([]error, len(members))
	for i, m := range members {
		errs[i] = pgx.BeginFunc(m.ctx, tx, func(tx pgx.Tx) error { return m.work(m.ctx, tx, tokens[m.resource]) })
	}
	if err := seal(ctx, tx, held, positions, counts); err != nil {
		return nil, err
	}
	return errs, Commit(ctx, tx)
}

// seal moves the fences that are where the claims left them.
func seal(ctx context.Context, tx pgx.Tx, held []fenced, positions []int64, counts bool) error {
	const move = `
		update control_fence f set position = f.position + 1
		from unnest($1::text[], $2::bigint[], $3::bigint[]) as g(resource, token, position)
		where f.resource = g.resource and f.token = g.token and f.position = g.position`
	resources, tokens := make([]string, len(held)), make([]int64, len(held))
	for i, h := range held {
		resources[i], tokens[i] = h.resource, h.token
	}
	tag, err := tx.Exec(ctx, move, resources, tokens, positions)
	if err == nil && counts && tag.RowsAffected() != int64(len(held)) {
		return fmt.Errorf("%w: a fence was moved", ErrLockLost)
	}
	return err
}

// fenced is a lock with a fence.
type fenced struct {
	mutex
	token int64
}

func (h fenced) Token() int64 { return h.token }

// claim raises the fence, and returns its position.
func (h fenced) claim(ctx context.Context, db queryer) (position int64, err error) {
	const raise = `
		insert into control_fence as f (resource, token, position) values ($1, $2, 1)
		on conflict (resource) do update set token = excluded.token, position = f.position + 1 where f.token <= excluded.token
		returning position`
	err = db.QueryRow(ctx, raise, h.resource, h.token).Scan(&position)
	if errors.Is(err, pgx.ErrNoRows) {
		err = fmt.Errorf("%w: a token above %d has claimed", ErrLockLost, h.token)
	}
	return position, err
}

// queryer is a pool or a transaction.
type queryer interface {
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

// Check raises the fence in the transaction of work that is in no group.
func (h fenced) Check(ctx context.Context, tx pgx.Tx) error {
	_, err := h.claim(ctx, tx)
	return err
}

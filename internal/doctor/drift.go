package doctor

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/fence/etcd/inspect"
	"github.com/fencekit/fencekit/internal/epoch"
)

// checkEpochs compares etcd's epoch with what the database has seen. The database is read first: it
// learns a new epoch from etcd.
func checkEpochs(ctx context.Context, s *target) ([]Finding, error) {
	d := s.db
	var in epoch.Database
	err := d.read(ctx, func(ctx context.Context, tx pgx.Tx) (err error) {
		in, err = epoch.ReadIn(ctx, tx, d.Schema)
		return err
	})
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, nil // checkSetting says so
	}
	if err != nil {
		return nil, err
	}
	key, err := s.etcd.inspector.Epoch(ctx)
	if err != nil {
		return nil, err
	}
	seen := fmt.Sprintf("etcd has epoch %d, the database has seen %d", key.Number, in.Number)
	switch epoch.Compare(key, in) {
	case epoch.Behind:
		return []Finding{d.found(epochBehind, seen, "reason", "'etcd was restored'")}, nil
	case epoch.TooFar:
		return []Finding{d.found(epochJump, fmt.Sprintf("%s, max_epoch_jump is %d", seen, in.MaxJump), "reason", "'epoch was mistyped'")}, nil
	}
	return nil, nil // checkTokens looks at fences whose tokens are too high
}

// fenceState is a fence that seems to be ahead of etcd.
type fenceState struct {
	name  string
	grant fence.Grant
}

// maxAhead is how many fences that seem to be ahead of etcd are looked at.
const maxAhead = 1000

// checkTokens looks for fences that etcd can't have granted. It reads all fences. Those that moved
// meanwhile are compared with a revision that was read after them.
func checkTokens(ctx context.Context, s *target) ([]Finding, error) {
	d := s.db
	before, err := s.etcd.inspector.Epoch(ctx)
	if err != nil {
		return nil, err
	}
	var ahead []fenceState
	err = d.read(ctx, func(ctx context.Context, tx pgx.Tx) error {
		rows, err := tx.Query(ctx, d.fill(`
			select name::text, epoch, token, holder::text from {schema}.resource
			 where epoch = $1 and token > $2 order by token desc limit $3`), before.Number, before.Revision, maxAhead)
		if err != nil {
			return err
		}
		var f fenceState
		_, err = pgx.ForEachRow(rows, []any{&f.name, &f.grant.Epoch, &f.grant.Token, &f.grant.Holder}, func() error {
			ahead = append(ahead, f)
			return nil
		})
		return err
	})
	if err != nil || len(ahead) == 0 {
		return nil, err
	}
	now, err := s.etcd.inspector.Epoch(ctx)
	if err != nil {
		return nil, err
	}
	if err := sameEpoch(before, now); err != nil {
		return nil, err
	}
	return d.judgeAhead(ahead, now.Revision), nil
}

// sameEpoch returns an error if the tokens that were read can't be compared with the later revision.
func sameEpoch(before, now inspect.Epoch) error {
	if before.Number != now.Number {
		return fmt.Errorf("etcd's epoch changed from %d to %d meanwhile; run it again", before.Number, now.Number)
	}
	return nil
}

// judgeAhead tells false grants from those of an etcd that was restored since.
func (d *database) judgeAhead(ahead []fenceState, revision int64) (found []Finding) {
	var forged, old []string
	for _, f := range ahead {
		text := fmt.Sprintf("%s (token %s of %s)", f.name, f.grant.Token, f.grant.Holder)
		switch above := int64(f.grant.Token) - revision; {
		case above <= 0:
		case above > epoch.FarAhead:
			if len(forged) == 0 {
				found = append(found, d.found(fenceTokenAbsurd, "", "resource", ShellWord(f.name), "reason", "'an absurd token had claimed'"))
			}
			forged = append(forged, text)
		default:
			old = append(old, text)
		}
	}
	seen := func(names []string) string {
		return firstOf(int64(len(names)), "fence", names) + fmt.Sprintf("; etcd is at revision %d", revision)
	}
	for i := range found {
		found[i].Seen = seen(forged)
	}
	if len(old) > 0 {
		found = append(found, d.found(etcdWentBack, seen(old), "reason", "'etcd was restored'"))
	}
	return found
}

// checkHolders compares the holders in etcd with the fences that have their tokens.
func checkHolders(ctx context.Context, s *target) (found []Finding, err error) {
	d := s.db
	locks, err := s.etcd.inspector.Locks(ctx)
	if err != nil || len(locks.Queues) == 0 {
		return nil, err
	}
	var names []string
	holders := map[string]map[fence.Token]string{}
	for _, lock := range locks.Queues {
		names = append(names, lock.Resource)
		holders[lock.Resource] = map[fence.Token]string{}
		for _, a := range lock.Queue {
			if a.Grant.Holder != "" && a.Grant.Epoch == locks.Epoch {
				holders[lock.Resource][a.Grant.Token] = a.Grant.Holder
			}
		}
	}
	err = d.read(ctx, func(ctx context.Context, tx pgx.Tx) error {
		rows, err := tx.Query(ctx, d.fill("select name::text, token, holder::text from {schema}.resource where name = any ($1) and epoch = $2 order by name"), names, locks.Epoch)
		if err != nil {
			return err
		}
		var name, holder string
		var token fence.Token
		_, err = pgx.ForEachRow(rows, []any{&name, &token, &holder}, func() error {
			if other := holders[name][token]; other != "" && other != holder {
				found = append(found, d.found(fenceCollision, fmt.Sprintf("%s: token %s is %s in etcd, and %s in the fence", name, token, other, holder), "reason", "'a token was issued twice'"))
			}
			return nil
		})
		return err
	})
	return found, err
}

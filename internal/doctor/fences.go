package doctor

import (
	"cmp"
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
	err := d.read(ctx, func(tx pgx.Tx) (err error) {
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
	seen := facts{"etcd": key.Number, "seen": in.Number, "jump": in.MaxJump}
	switch epoch.Compare(key, in) {
	case epoch.Behind:
		return []Finding{d.found("epoch-behind", seen)}, nil
	case epoch.TooFar:
		return []Finding{d.found("epoch-jump", seen)}, nil
	}
	return nil, nil // checkTokens looks at fences whose tokens are too high
}

type state struct {
	Name   string
	Token  fence.Token
	Holder string
}

const maxAhead = 1000

// checkTokens looks for fences that etcd can't have granted. It reads all fences. Those that moved
// meanwhile are compared with a revision that was read after them.
func checkTokens(ctx context.Context, s *target) ([]Finding, error) {
	before, err := s.etcd.inspector.Epoch(ctx)
	if err != nil {
		return nil, err
	}
	ahead, err := rows(ctx, s.db, pgx.RowToStructByPos[state], `
		select name::text, token, holder::text from {schema}.resource
		 where epoch = $1 and token > $2 order by token desc limit $3`, before.Number, before.Revision, maxAhead)
	if err != nil || len(ahead) == 0 {
		return nil, err
	}
	now, err := s.etcd.inspector.Epoch(ctx)
	if err == nil {
		err = sameEpoch(before, now)
	}
	if err != nil {
		return nil, err
	}
	return s.db.judgeAhead(ahead, now.Revision), nil
}

func sameEpoch(before, now inspect.Epoch) error {
	if before.Number != now.Number {
		return fmt.Errorf("etcd's epoch changed from %d to %d meanwhile; run it again", before.Number, now.Number)
	}
	return nil
}

// judgeAhead tells false grants from those of an etcd that was restored since.
func (d *database) judgeAhead(ahead []state, revision int64) (found []Finding) {
	var forged, old []string
	var resource string
	for _, f := range ahead {
		text := fmt.Sprintf("%s (token %s of %s)", f.Name, f.Token, f.Holder)
		switch above := int64(f.Token) - revision; {
		case above > epoch.FarAhead:
			forged, resource = append(forged, text), cmp.Or(resource, f.Name)
		case above > 0:
			old = append(old, text)
		}
	}
	if len(forged) > 0 {
		found = append(found, d.found("fence-token-absurd", facts{"n": len(forged), "names": forged, "revision": revision, "resource": resource}))
	}
	if len(old) > 0 {
		found = append(found, d.found("etcd-went-back", facts{"n": len(old), "names": old, "revision": revision}))
	}
	return found
}

func checkHolders(ctx context.Context, s *target) (found []Finding, err error) {
	locks, err := s.etcd.inspector.Locks(ctx)
	if err != nil || len(locks.Queues) == 0 {
		return nil, err
	}
	var names []string
	holders := map[state]string{} // by resource and token
	for _, lock := range locks.Queues {
		names = append(names, lock.Resource)
		for _, a := range lock.Queue {
			if a.Grant.Epoch == locks.Epoch {
				holders[state{Name: lock.Resource, Token: a.Grant.Token}] = a.Grant.Holder
			}
		}
	}
	fences, err := rows(ctx, s.db, pgx.RowToStructByPos[state],
		"select name::text, token, holder::text from {schema}.resource where name = any ($1) and epoch = $2 order by name", names, locks.Epoch)
	for _, f := range fences {
		if holder := holders[state{Name: f.Name, Token: f.Token}]; holder != "" && holder != f.Holder {
			found = append(found, s.db.found("fence-collision", facts{"resource": f.Name, "token": f.Token, "holder": holder, "other": f.Holder}))
		}
	}
	return found, err
}

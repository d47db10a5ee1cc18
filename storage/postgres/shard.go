package postgres

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/internal/record"
	"github.com/fencekit/fencekit/storage"
	"github.com/fencekit/fencekit/storage/postgres/internal/sqlstate"
	"github.com/fencekit/fencekit/storage/postgres/internal/wire"
)

// Shard is one of Count databases over which resources are spread: number Index, from 0 on, of
// those that all processes have in the same order. It has the resources for which
// guard.ShardOf(name, Count) is Index. The zero Shard is a database that has all resources.
type Shard struct{ Index, Count int }

const maxShards = 1000 // a claim computes as many hashes

func (s Shard) validate() error {
	if s != (Shard{}) && (s.Index < 0 || s.Index >= s.Count || s.Count > maxShards) {
		return fmt.Errorf("%w: postgres.Config.Shard is %d of %d, want an index below the count, which is at most %d", fence.ErrInvalid, s.Index, s.Count, maxShards)
	}
	return nil
}

// String returns what a database is called that is this shard, such as "2 of 4, rule 1", or "" for
// the zero Shard. The rule is that of guard.ShardOf.
func (s Shard) String() string {
	if s.Count == 0 {
		return ""
	}
	return fmt.Sprintf("%d of %d, rule 1", s.Index, s.Count)
}

// check rejects claims of resources that belong to another shard: each would get a second fence here,
// and holders who don't see each other's writes.
func (s Shard) check(claims []storage.Claim) error {
	if s.Count == 0 {
		return nil
	}
	for _, c := range claims {
		if of := storage.ShardOf(c.Grant.Resource, s.Count); of != s.Index { // mutant: any-shard-takes-any-resource
			return fmt.Errorf("%w: %s belongs to shard %d of %d, and this is the store of shard %d: call guard.ShardOf to choose the Guard, and give names that are to change together the same {tag}",
				fence.ErrInvalid, c.Grant.Resource, of, s.Count, s.Index)
		}
	}
	return nil
}

// SetShard makes the database the shard that Config.Shard names, if it is none and holds no fences
// yet. If it is that shard already SetShard does nothing, for which the rights of an app role are
// enough. Otherwise the pool's role must own the schema, which has been migrated. A database
// that is another shard, or holds fences, is a *NotReadyError with OtherShard: its data may
// belong elsewhere, and its message has the statement that makes it the shard all the same.
// SetShard waits for claims and seals under way, until ctx ends; later ones wait for it.
func (s *Store) SetShard(ctx context.Context) error {
	wrong := s.checkShard(ctx)
	if sqlstate.Of(wrong) != sqlstate.OtherShard {
		return wrong
	}
	set := false
	err := record.WriteTx(ctx, s.pool, func(tx pgx.Tx) error {
		schema := s.sql.schema
		// In a statement of its own, so that the next one's snapshot has the fences of claims that were under way.
		if _, err := tx.Exec(ctx, "lock table "+schema+".resource in share mode"); err != nil {
			return err
		}
		tag, err := tx.Exec(ctx, "update "+schema+".setting set shard = $1 where shard is null and not exists (select from "+schema+".resource)", s.cfg.Shard.String())
		set = tag.RowsAffected() == 1
		return err
	})
	switch {
	case err != nil && sqlstate.Of(err) != sqlstate.NoRights:
		return fmt.Errorf("postgres: setting the shard: %w", wire.NameCached(err))
	case set:
		return nil
	}
	return wrong
}

// checkShard rejects a database that has another part of the data.
func (s *Store) checkShard(ctx context.Context) error {
	_, err := s.pool.Exec(ctx, "select "+s.sql.schema+".check_shard($1)", s.cfg.Shard.String())
	if err != nil && sqlstate.Of(err) != sqlstate.OtherShard {
		return asked("read which shard the database is", err)
	}
	return s.nameShard(err)
}

// nameShard names the error of a call for another shard.
func (s *Store) nameShard(err error) error {
	if sqlstate.Of(err) != sqlstate.OtherShard {
		return err
	}
	value := "null"
	if s.cfg.Shard.Count > 0 {
		value = "'" + s.cfg.Shard.String() + "'"
	}
	return fmt.Errorf("%w: %w; connect to that shard's database, and give all processes the same list of databases; only if this database holds exactly that shard's data, run as the schema's owner: update %s.setting set shard = %s",
		notReady(OtherShard), err, s.sql.schema, value)
}

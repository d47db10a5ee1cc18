package postgres

import (
	"context"
	"fmt"
	"regexp"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/storage/postgres/internal/sqlstate"
	"github.com/fencekit/fencekit/storage/postgres/internal/wire"
)

var shardPattern = regexp.MustCompile(`^[a-zA-Z0-9 ,._/-]{0,63}$`)

func validateShard(shard string) error {
	if !shardPattern.MatchString(shard) {
		return fmt.Errorf("%w: shard %q: want letters, digits, spaces and , . _ / -, at most 63", fence.ErrInvalid, shard)
	}
	return nil
}

// SetShard makes a database that holds no fences yet a shard; see Config.Shard. If it is that shard
// already SetShard does nothing, for which the rights of an app role are enough. Otherwise the
// pool's role must own the schema ("" means DefaultSchema), which has been migrated. A database
// that is another shard, or holds fences, is a *NotReadyError with OtherShard: its data may
// belong elsewhere, and its message has the statement that makes it the shard all the same.
func SetShard(ctx context.Context, pool *pgxpool.Pool, schema, shard string) error {
	store, err := NewStore(pool, &Config{Schema: schema, Shard: shard})
	if err != nil {
		return err
	}
	wrong := store.checkShard(ctx)
	if sqlstate.Of(wrong) != sqlstate.OtherShard {
		return wrong
	}
	set := false
	err = asOwner(ctx, pool, func(tx pgx.Tx) error {
		s := store.sql.schema
		tag, err := tx.Exec(ctx, "update "+s+".setting set shard = $1 where shard is null and not exists (select from "+s+".resource)", shard)
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
	_, err := s.pool.Exec(ctx, "select "+s.sql.schema+".check_shard($1)", s.cfg.Shard)
	if err != nil && sqlstate.Of(err) != sqlstate.OtherShard {
		return fmt.Errorf("postgres: can't read which shard the database is: %w", wire.NameCached(err))
	}
	return s.nameShard(err)
}

// nameShard names the error of a call for another shard.
func (s *Store) nameShard(err error) error {
	if sqlstate.Of(err) != sqlstate.OtherShard {
		return err
	}
	value := "null"
	if s.cfg.Shard != "" {
		value = "'" + s.cfg.Shard + "'"
	}
	return fmt.Errorf("%w: %w; connect to the database that is it, and see that all processes have the same list of databases; only if this one holds exactly the data of that shard, its owner runs: update %s.setting set shard = %s",
		notReady(OtherShard), err, s.sql.schema, value)
}

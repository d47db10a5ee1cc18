package postgres

import (
	"context"
	"fmt"
	"regexp"

	"github.com/jackc/pgx/v5"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/internal/record"
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
		tag, err := tx.Exec(ctx, "update "+schema+".setting set shard = $1 where shard is null and not exists (select from "+schema+".resource)", s.cfg.Shard)
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
	if s.cfg.Shard != "" {
		value = "'" + s.cfg.Shard + "'"
	}
	return fmt.Errorf("%w: %w; connect to that shard's database, and give all processes the same list of databases; only if this database holds exactly that shard's data, run as the schema's owner: update %s.setting set shard = %s",
		notReady(OtherShard), err, s.sql.schema, value)
}

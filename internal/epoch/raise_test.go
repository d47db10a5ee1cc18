package epoch

import (
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/storage"
)

// Claims of earlier epochs are rejected from the raise on, and those of the new one are not,
// whatever their tokens. A grant that has a fence keeps it.
func TestRaise_EndsEarlierEpochs(t *testing.T) {
	t.Parallel()
	d := newDatabase(t)
	require.Equal(t, Database{Number: 1, MaxJump: 10}, d.read())
	old := d.write(d.claim(grant(1, 50, "a")))
	require.Equal(t, Database{Number: 1, MaxJump: 10, Highest: old.Grant}, d.read())

	done, err := raise(9).Apply(t.Context(), d.owner, schema, true)
	require.NoError(t, err)
	require.True(t, done)
	require.EqualValues(t, 1, d.read().Number, "a dry run")
	d.raise(1000)
	now := d.read()
	require.EqualValues(t, 1000, now.Number)
	require.Equal(t, old.Grant, now.Highest)
	require.WithinDuration(t, time.Now(), now.Raised.At, time.Hour)
	require.NotEmpty(t, now.Raised.Role)
	now.Raised.At, now.Raised.Role = time.Time{}, ""
	require.Equal(t, raise(1000), *now.Raised)

	old = d.write(old)
	d.rejects(grant(1, 51, "b"), storage.ReasonEpochBehind)
	d.rejects(grant(1000, 40+1<<40+1, "b"), storage.ReasonTokenJump)
	d.write(d.claim(grant(1000, 3, "b")))
	_, err = d.try(old)
	require.ErrorIs(t, err, storage.ErrStaleToken)
}

// It is raised by the owner alone, and only upwards; the reader role may read it.
func TestRaise_OnlyUp(t *testing.T) {
	t.Parallel()
	d := newDatabase(t)
	app, reader := d.roles()
	for _, pool := range []*pgxpool.Pool{app, reader} {
		_, err := raise(2).Apply(t.Context(), pool, schema, false)
		require.ErrorContains(t, err, "42501")
	}
	d.raise(5)
	for _, wanted := range []int64{2, 5} {
		for _, dry := range []bool{true, false} {
			done, err := raise(wanted).Apply(t.Context(), d.owner, schema, dry)
			require.NoError(t, err)
			require.False(t, done)
		}
	}
	got, err := Read(t.Context(), reader, schema)
	require.NoError(t, err)
	require.EqualValues(t, 5, got.Number)
	require.Equal(t, raise(5).Reason, got.Raised.Reason)
}

// Of raises to one epoch at a time one succeeds.
func TestRaise_IsOneAtATime(t *testing.T) {
	t.Parallel()
	d := newDatabase(t)
	var raises atomic.Int32
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			done, err := raise(2).Apply(t.Context(), d.owner, schema, false)
			assert.NoError(t, err)
			if done {
				raises.Add(1)
			}
		})
	}
	all.Wait()
	require.EqualValues(t, 1, raises.Load())
	var recorded int
	require.NoError(t, d.owner.QueryRow(t.Context(), "select count(*) from fence.epoch_raise").Scan(&recorded))
	require.Equal(t, 1, recorded)
}

// A fence and its history are gone, as after a restore of other tables than these: nothing
// says any more which grants are over. A raise shuts out all of them.
func TestRaise_ShutsOutGrantsWhoseFenceIsGone(t *testing.T) {
	t.Parallel()
	d := newDatabase(t)
	old := d.claim(grant(1, 5, "a"))
	d.write(d.claim(grant(1, 6, "b")))
	d.sql(`alter table fence.resource disable trigger all; alter table fence.history disable trigger all;
		delete from fence.resource; delete from fence.history;
		alter table fence.resource enable always trigger protect_fence; alter table fence.resource enable always trigger protect_name;
		alter table fence.history enable always trigger protect_history; alter table fence.history enable always trigger protect_kept_history`)
	d.raise(2)
	_, err := d.try(old)
	require.Error(t, err)
	d.rejects(old.Grant, storage.ReasonEpochBehind)
	d.write(d.claim(grant(2, 1, "c")))
}

// Only the table of settings was put back: the fences still say which epoch they have seen. Without
// its row nothing is known.
func TestRead_TakesTheFencesEpochIfItIsHigher(t *testing.T) {
	t.Parallel()
	d := newDatabase(t)
	d.claim(grant(4, 5, "a"))
	d.sql("alter table fence.setting disable trigger all; update fence.setting set epoch = 1")
	require.EqualValues(t, 4, d.read().Number)
	d.sql("delete from fence.setting")
	_, err := Read(t.Context(), d.owner, schema)
	require.ErrorIs(t, err, pgx.ErrNoRows)
}

package postgres

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/jackc/pgx/v5"

	"github.com/fencekit/fencekit/internal/record"
)

// pruneExport is where a prune writes entries before it deletes them.
type pruneExport struct {
	to interface {
		io.Writer
		Sync() error
	}
	schema    string // as an identifier
	resources string
	out       *record.Writer // nil before the first range
}

// write writes the entries of ranges, each with the claim that an earlier prune has left before
// it, which may go too, and syncs.
func (x *pruneExport) write(ctx context.Context, tx pgx.Tx, ranges []prunable) error {
	if err := x.begin(ctx, tx); err != nil {
		return err
	}
	for _, r := range ranges {
		if err := x.writeRange(ctx, tx, r); err != nil {
			return err
		}
	}
	return exportFailed(errors.Join(x.out.Flush(), x.to.Sync()))
}

// begin writes the first line, if there is none yet.
func (x *pruneExport) begin(ctx context.Context, tx pgx.Tx) error {
	if x.out != nil {
		return nil
	}
	begin := record.Begin{Of: record.OfPrune, Resources: x.resources}
	err := record.CopyOut(ctx, tx.Conn(), "select pg_catalog.clock_timestamp()", func(c *record.Columns) error {
		begin.At = c.Time()
		return nil
	})
	if err != nil {
		return err
	}
	x.out, err = record.NewWriter(x.to, begin)
	return exportFailed(err)
}

func (x *pruneExport) writeRange(ctx context.Context, tx pgx.Tx, r prunable) error {
	resource := record.Resource{Number: r.Resource, Name: r.Name, To: r.End - 1}
	checkpoint := fmt.Sprintf("select %s from %s.checkpoint c where c.resource = %d", record.CheckpointColumns, x.schema, r.Resource)
	err := record.CopyOut(ctx, tx.Conn(), checkpoint, func(c *record.Columns) error {
		resource.Checkpoint = c.Checkpoint()
		return nil
	})
	if err != nil {
		return err
	}
	if err := x.out.Write(&record.Line{Resource: &resource}); err != nil {
		return exportFailed(err)
	}
	entries := fmt.Sprintf("select %s from %s.entries_to_prune(array[%d], array[%d::bigint], array[%d::bigint]) h", record.EntryColumns, x.schema, r.Resource, r.First, r.End)
	var reader record.EntryReader
	return record.CopyOut(ctx, tx.Conn(), entries, func(c *record.Columns) error {
		e := reader.Read(c)
		if c.Err() != nil {
			return c.Err()
		}
		return exportFailed(x.out.Write(&record.Line{Entry: e}))
	})
}

// end writes the last line, if there is a first one, and syncs.
func (x *pruneExport) end() error {
	if x.out == nil {
		return nil
	}
	return exportFailed(errors.Join(x.out.End(), x.to.Sync()))
}

// exportFailed says of an error that it is the export's.
func exportFailed(err error) error {
	if err != nil {
		return fmt.Errorf("the export: %w", err)
	}
	return nil
}

package audit

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/internal/record"
	"github.com/fencekit/fencekit/internal/schemadef"
)

// Verify verifies one snapshot of the history, in one transaction, without blocking writers or prunes.
// Memory doesn't grow with the number of entries or resources, but with VerifyOptions.Known. Findings
// are in the Report: an error means that the verification is incomplete.
func (d *Database) Verify(ctx context.Context, v VerifyOptions) (Report, error) {
	run := v.begin()
	var at time.Time
	err := d.snapshot(ctx, func(s *snapshot) error {
		at = s.at
		x := newSection(run, record.Begin{Of: record.OfDatabase, At: record.TimeOf(s.at), Resources: v.Resources}, true)
		x.orphans = true // those that are read were asked for
		x.names = nil    // the database tells
		if err := s.lines(v.Resources, func(l *record.Line) error {
			if !x.line(l) { // no other line can be wrong
				run.severalFences(l.Resource.Name)
			}
			return nil
		}); err != nil {
			return err
		}
		x.close()
		var name string
		if err := s.each("select r.name from @resource r group by r.name having count(*) > 1", []any{&name}, func() error {
			if run.matches(name) {
				run.severalFences(name)
			}
			return nil
		}); err != nil {
			return err
		}
		return run.verifyTables(s, d.schema)
	})
	if err != nil {
		return Report{}, fmt.Errorf("audit: verifying the history: %w", err)
	}
	return run.end(at), nil
}

func (v *verification) severalFences(name string) {
	v.add(Finding{Kind: FindingWrongName, Resource: name, Text: "The resource has several fences: each would let another holder in.", Expected: "1", Found: "more"})
}

func (v *verification) verifyTables(s *snapshot, schema string) error {
	all, err := schemadef.Compare(strings.Trim(schema, `"`), func(sql string, columns int, each func(row []string)) error {
		row, places := make([]string, columns), make([]any, columns)
		for i := range row {
			places[i] = &row[i]
		}
		return s.each(sql, places, func() error {
			each(row)
			return nil
		})
	})
	if err != nil {
		return err
	}
	// schemadef leaves the schema out of the statements that it compares.
	named := strings.NewReplacer(" on .", " on "+schema+".", " execute function .", " execute function "+schema+".")
	for _, d := range all {
		v.add(Finding{Kind: FindingUnprotectedTable, Text: "The " + d.String() + ".", Expected: named.Replace(d.Want), Found: named.Replace(cmp.Or(d.Found, "none"))})
	}
	return nil
}

// VerifyExports verifies exports (Database.Export, postgres.PruneOptions.Export) without a database.
// They may come in any order, and have to agree with each other. VerifyOptions.Known has to be in the
// newest one that isn't of a prune. The memory grows with the number of resources, not with that of
// entries. It fails if it couldn't read everything; what the exports violate is in the report alone.
func VerifyExports(ctx context.Context, v VerifyOptions, exports ...io.Reader) (Report, error) {
	run := v.begin()
	if len(exports) == 0 {
		return Report{}, fmt.Errorf("%w: audit.VerifyExports without an export", fence.ErrInvalid)
	}
	run.ends = knownHeads{}
	files := sortedByTime(exports)
	for i, f := range files {
		x := &exportVerifier{run: run, in: record.NewReader(f.in)}
		x.newest = !slices.ContainsFunc(files[i+1:], func(later exportFile) bool { return later.of == record.OfDatabase })
		if err := x.file(ctx); err != nil {
			return Report{}, fmt.Errorf("audit: verifying an export: %w", err)
		}
	}
	return run.end(files[len(files)-1].time()), nil
}

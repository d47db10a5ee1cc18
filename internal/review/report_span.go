package review

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fencekit/fencekit/internal/glob"
	"github.com/fencekit/fencekit/internal/record"
)

// readUntil decides where what the report covers ends.
func (r *Reader) readUntil(ctx context.Context, report *Report) error {
	var asked time.Time
	err := record.ReadTx(ctx, r.pool, "", func(tx pgx.Tx) error { return tx.QueryRow(ctx, "select now()").Scan(&asked) })
	if err != nil {
		return fmt.Errorf("review: reading the database's clock: %w", err)
	}
	report.Until = report.To
	if asked.Before(report.Until) {
		report.Until = asked.UTC()
	}
	return nil
}

// begun reports whether a part of the period had passed.
func (report *Report) begun() bool { return report.From.Before(report.Until) }

// ended reports whether all of the period had passed.
func (report *Report) ended() bool { return report.Until.Equal(report.To) }

// readBegins reads when the record of the resources begins.
func (r *Reader) readBegins(ctx context.Context, report *Report) error {
	sql := "select least((select min(e.at) from " + r.schema + ".resource f left join " + r.schema + ".checkpoint c on c.resource = f.id" +
		" join " + r.schema + ".history e on e.resource = f.id and e.seq = coalesce(c.first, 1) where f.name like $1)," +
		" (select min(first_at) from " + r.schema + ".rejection where resource like $1))"
	err := record.ReadTx(ctx, r.pool, "", func(tx pgx.Tx) error {
		return tx.QueryRow(ctx, sql, pgx.QueryExecModeExec, glob.Like(report.Resources)).Scan(&report.Begins)
	})
	if err != nil {
		return fmt.Errorf("review: reading the beginning of the record: %w", err)
	}
	if report.Begins != nil {
		begins := report.Begins.UTC()
		report.Begins = &begins
	}
	return nil
}

// lacksBeginning reports whether the record begins after the beginning of the period.
func (report *Report) lacksBeginning() bool {
	return report.Begins != nil && report.Begins.After(report.From)
}

// lacksAll reports whether the record begins after the period.
func (report *Report) lacksAll() bool {
	return report.Begins != nil && !report.Begins.Before(report.Until)
}

// span says which time the report covers.
func (report *Report) span() string {
	span := "from " + minutes(report.From) + " to " + minutes(report.Until) + " UTC"
	if !report.ended() {
		span += ", when this was asked"
	}
	return span
}

// minutes writes a time without its seconds, if there are none.
func minutes(at time.Time) string {
	if at.Equal(at.Truncate(time.Minute)) {
		return at.Format("2006-01-02 15:04")
	}
	return clock(at)
}

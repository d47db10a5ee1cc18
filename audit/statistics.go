package audit

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
)

// Statistics count what the history has.
type Statistics struct {
	Resources             int64 // that have an entry
	Claims, Writes, Voids int64
	Holders               int64     // different ones that claimed
	Rejections            int64     // each time counts, however many records there are
	First, Last           time.Time // of the earliest and the latest entry; zero if there is none
	Bytes                 int64     // of the entries in their table, without indexes
}

// Statistics counts the entries and rejections that match. It takes the names, Since and Until,
// which are as for Entries and Rejections. It reads all of them, by one statement each: some seconds for
// ten million.
func (d *Database) Statistics(ctx context.Context, f Filter) (Statistics, error) {
	if err := f.validate("statistics", takesTimes); err != nil {
		return Statistics{}, err
	}
	named := conditions{}
	named.addResource(&f, "name")
	where := conditions{args: named.args}
	if len(named.sql) > 0 {
		where.sql = []string{"resource in (select id from " + d.schema + ".resource where " + named.where() + ")"}
	}
	where.addTimes(&f)
	where.addTimeIndex(&f)
	found, err := collect(ctx, d, "select count(distinct resource), count(*) filter (where kind = 'c'), count(*) filter (where kind = 'w'), count(*) filter (where kind = 'v'),"+
		" count(distinct holder), min(at), max(at), coalesce(sum(pg_column_size(h)), 0) from "+d.schema+".history h where "+where.where(), where.args,
		func(row pgx.CollectableRow) (s Statistics, err error) {
			var first, last *time.Time
			err = row.Scan(&s.Resources, &s.Claims, &s.Writes, &s.Voids, &s.Holders, &first, &last, &s.Bytes)
			if first != nil && last != nil {
				s.First, s.Last = *first, *last
			}
			return s, err
		})
	if err != nil {
		return Statistics{}, err
	}
	where = conditions{}
	where.addRejections(&f)
	rejections, err := collect(ctx, d, "select coalesce(sum(count), 0) from "+d.schema+".rejection where "+where.where(), where.args, pgx.RowTo[int64])
	if err != nil {
		return Statistics{}, err
	}
	found[0].Rejections = rejections[0]
	return found[0], nil
}

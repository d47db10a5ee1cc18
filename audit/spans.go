package audit

import (
	"context"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"
)

// limits bound what one statement reads, so that each is short.
type limits struct {
	resources int
	claims    int64 // positions whose claims are read
	entries   int64 // positions whose entries are read
	rows      int   // that are returned
	// sparse is how few entries of a statement have to match for the times of what is left to be
	// looked up in their index.
	sparse int
	// worth is how many entries of these times there may be for each position that is left.
	worth int64
	// together is about how many entries Export and Verify read by one statement, but for those of one resource.
	together int64
}

var usualLimits = limits{resources: 10_000, claims: 1_000_000, entries: 50_000, rows: 1_000, sparse: 100, worth: 1, together: 100_000}

type span struct {
	resource int32
	name     string
	from, to int64
}

func cut(spans []span, n int64) (first, rest []span) {
	for i, s := range spans {
		size := s.to - s.from + 1
		if size < n {
			n -= size
			continue
		}
		head := s
		head.to = s.from + n - 1
		first = append(spans[:i:i], head)
		if size == n {
			return first, spans[i+1:]
		}
		rest = slices.Clone(spans[i:])
		rest[0].from = head.to + 1
		return first, rest
	}
	return spans, nil
}

func following(spans []span, i int, position int64) []span {
	rest := slices.Clone(spans[i:])
	rest[0].from = position + 1
	return nonEmpty(rest)
}

func positions(spans []span) (n int64) {
	for _, s := range spans {
		n += s.to - s.from + 1
	}
	return n
}

func arrays(spans []span) (ids []int32, names []string, froms, tos []int64) {
	for _, s := range spans {
		ids, names, froms, tos = append(ids, s.resource), append(names, s.name), append(froms, s.from), append(tos, s.to)
	}
	return ids, names, froms, tos
}

// spans finds where entries that match a filter can lie. They are in the order of the
// resources' names and of the positions, and cover each entry that matches.
type spans struct {
	*Database
	filter Filter
	last   string // the resource up to which left was read
	left   []span // whose grants were not looked at yet, if the filter is by grant
	timely int64  // about how many entries of all resources are of the filter's times; 0 before it was asked
}

func (s *spans) next(ctx context.Context) ([]span, error) {
	for {
		if len(s.left) == 0 {
			more, err := s.resources(ctx)
			if err != nil || !more {
				return nil, err
			}
		}
		found, err := s.left, error(nil)
		if s.filter.byGrant() || s.filter.onlyClaims() {
			found, err = s.grants(ctx)
		} else {
			s.left = nil
		}
		if err != nil || len(found) > 0 {
			return found, err
		}
	}
}

func (s *spans) resources(ctx context.Context) (bool, error) {
	where := conditions{}
	where.addResource(&s.filter, "name")
	if s.last == "" {
		where.add("name >= $%d", s.filter.After.Resource)
	} else {
		where.add("name > $%d", s.last)
	}
	sql := "select r.name, r.id, l.seq, h.seq from (select id, name from " + s.schema + ".resource where " + where.where() + fmt.Sprintf(" order by name limit %d) r", s.limits.resources) +
		" left join lateral (select e.seq from " + s.schema + ".history e where e.resource = r.id order by e.seq limit 1) l on true" +
		" left join lateral (select e.seq from " + s.schema + ".history e where e.resource = r.id order by e.seq desc limit 1) h on true order by r.name"
	found, err := collect(ctx, s.Database, sql, where.args, func(row pgx.CollectableRow) (r span, err error) {
		var from, to *int64 // null if it has no history
		if err := row.Scan(&r.name, &r.resource, &from, &to); err != nil || from == nil || to == nil {
			return span{name: r.name, from: 1}, err
		}
		r.from, r.to = *from, *to
		if r.name == s.filter.After.Resource {
			r.from = max(r.from, s.filter.After.Seq+1)
		}
		return r, nil
	})
	if err != nil || len(found) == 0 {
		return false, err
	}
	s.last = found[len(found)-1].name
	s.left = nonEmpty(found)
	return true, nil
}

func nonEmpty(spans []span) []span {
	return slices.DeleteFunc(spans, func(s span) bool { return s.from > s.to })
}

// grants takes spans from left, and returns the parts of them that are of the filter's
// grants, or their claims alone if nothing else matches. There may be none.
func (s *spans) grants(ctx context.Context) ([]span, error) {
	among, rest := cut(s.left, s.limits.claims)
	_, names, froms, tos := arrays(among)
	where := conditions{args: []any{names, froms, tos}}
	where.addGrant(&s.filter)
	// The first grant of a span may have claimed before it.
	sql := "select s.n, c.seq, coalesce(n.seq - 1, s.hi)" +
		" from unnest($1::text[], $2::bigint[], $3::bigint[]) with ordinality s (name, lo, hi, n)" +
		" cross join lateral (select seq from " + s.schema + ".history where kind = 'c' and name = s.name and seq <= s.hi and seq >= coalesce(" +
		"(select p.seq from " + s.schema + ".history p where p.kind = 'c' and p.name = s.name and p.seq <= s.lo order by p.seq desc limit 1), s.lo)" +
		" and " + where.where() + fmt.Sprintf(" order by seq limit %d) c", s.limits.rows) +
		" left join lateral (select seq from " + s.schema + ".history where kind = 'c' and name = s.name and seq > c.seq order by seq limit 1) n on true" +
		fmt.Sprintf(" order by s.n, c.seq limit %d", s.limits.rows)
	type grant struct {
		N         int
		Claim, To int64
	}
	found, err := collect(ctx, s.Database, sql, where.args, pgx.RowToStructByPos[grant])
	if err != nil {
		return nil, err
	}
	s.left = rest
	if len(found) == s.limits.rows {
		last := found[len(found)-1]
		s.left = append(following(among, last.N-1, last.To), rest...)
	}
	var parts []span
	for _, g := range found {
		part := among[g.N-1]
		if s.filter.onlyClaims() {
			g.To = g.Claim
		}
		part.from, part.to = max(part.from, g.Claim), min(part.to, g.To)
		parts = append(parts, part)
	}
	return nonEmpty(parts), nil
}

// narrow returns the parts of spans that may have entries within the filter's times: for each
// resource, those from the first such entry to the last one, as the index on time tells. If the index would have
// to read more than there is in the spans, it returns them as they are.
func (s *spans) narrow(ctx context.Context, all []span) ([]span, error) {
	if s.timely == 0 {
		if err := s.estimate(ctx); err != nil {
			return nil, err
		}
	}
	if s.timely > s.limits.worth*positions(all) {
		return all, nil
	}
	ids, _, _, _ := arrays(all)
	where := conditions{}
	where.add("resource = any ($%d)", ids)
	where.addTimes(&s.filter, "at", "at")
	where.addTimeIndex(&s.filter)
	if len(all) == 1 {
		where.add("seq >= $%d", all[0].from)
		where.add("seq <= $%d", all[0].to)
	}
	bounds := map[int32]span{}
	_, err := collect(ctx, s.Database, "select resource, min(seq), max(seq) from "+s.schema+".history where "+where.where()+" group by resource", where.args,
		func(row pgx.CollectableRow) (b span, err error) {
			err = row.Scan(&b.resource, &b.from, &b.to)
			bounds[b.resource] = b
			return b, err
		})
	var narrowed []span
	for _, one := range all {
		if b, ok := bounds[one.resource]; ok {
			one.from, one.to = max(one.from, b.from), min(one.to, b.to)
			narrowed = append(narrowed, one)
		}
	}
	return nonEmpty(narrowed), err
}

func (s *spans) estimate(ctx context.Context) error {
	where := conditions{}
	where.addTimeIndex(&s.filter)
	type plan struct {
		Plan struct {
			Rows int64 `json:"Plan Rows"`
		}
	}
	plans, err := collect(ctx, s.Database, "explain (format json) select from "+s.schema+".history where "+where.where(), where.args, pgx.RowTo[[]plan])
	if err == nil {
		s.timely = max(plans[0][0].Plan.Rows, 1)
	}
	return err
}

package mutants

const spansFile = "audit/spans.go"

// readMutants leave out entries that a filter admits, or return others.
var readMutants = []Mutant{
	change("read-skips-an-entry-after-a-page", "HF2", spansFile,
		`rest[0].from = position + 1`, `rest[0].from = position + 2`, inFilters),
	change("read-skips-an-entry-after-a-statement", "HF2", spansFile,
		`rest[0].from = head.to + 1`, `rest[0].from = head.to + 2`, inFilters),
	change("read-begins-at-the-next-claim", "HF2", spansFile,
		`order by p.seq desc limit 1), s.lo)`, `and false order by p.seq desc limit 1), s.lo)`, inFilters),
	change("read-takes-the-next-claim-too", "HF2", spansFile,
		`coalesce(n.seq - 1, s.hi)`, `coalesce(n.seq, s.hi)`, inFilters),
	change("read-ends-where-the-clock-went-back", "HF2", spansFile,
		`min(seq), max(seq)`, `min(seq), min(seq)`, inFilters),
	change("read-loses-the-last-ten-minutes", "HF2", "audit/filter.go",
		`c.add(at+" <= "`, `c.add(at+" < "`, Test{"audit", "TestStatistics_CountWhatMatches"}),
	change("read-repeats-the-entry-of-the-cursor", "HF2", spansFile,
		`max(r.from, s.filter.After.Seq+1)`, `max(r.from, s.filter.After.Seq)`, inFilters),
	change("read-fails-at-malformed-operations", "HF2", "audit/filter.go",
		`sql := "case " + schema + ".well_formed(ops) when true then ops::jsonb @> $%d::text::jsonb when false then true end"`, `sql := "ops::jsonb @> $%d::text::jsonb"`, inMalformed),
	change("read-skips-malformed-operations", "HF2", "audit/filter.go",
		` when false then true end"`, ` end"`, inMalformed),
	change("read-takes-malformed-operations-for-any", "HF2", "audit/entries.go",
		`return !slices.ContainsFunc(e.Ops, r.filter.matches)`, `return false`, inMalformed),
}

var inMalformed = Test{"audit", "TestEntries_WithMalformedOperations"}

var inFilters = Test{"audit", "TestEntries_AreThoseThatTheFilterAdmits"}

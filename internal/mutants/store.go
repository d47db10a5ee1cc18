package mutants

const pg = "storage/postgres/"

// storeMutants are in the store's own code, but for what it makes of answers.
var storeMutants = []Mutant{
	change("seal-dropped", "G2", pg+"commit.go",
		`fmt.Fprintf(&sql, t.store.sql.seal, c.Resource, g.Epoch, int64(g.Token), g.Holder, c.Seq, int64(c.Tx), int64(t.id), record)`,
		`_, _ = g, record`,
		inPostgres("TestFence_RefusesTheSuperseded_G2_G3_G5/read_committed/before_the_seal")),
}

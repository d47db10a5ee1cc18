package mutants

// bySchedules is the random harness: what the deterministic tests notice by a schedule
// of their own, it has to come upon.
var bySchedules = inPostgres("TestSchedules_LoseNoUpdate")

// withoutPositionKey lets two moves take one position: else the history's key would
// notice, and not the data.
var withoutPositionKey = Edit{schemaSQL, "{{schema}}.resource_name, -- of the resource\n    primary key (resource, seq)\n", "{{schema}}.resource_name\n"}

// scheduleMutants are what the protocol can't do without.
var scheduleMutants = []Mutant{
	change("schedules-no-position-compared", "G2 G6", functionsSQL,
		sealPosition, "", bySchedules).and(withoutPositionKey),
	change("schedules-no-transaction-name-compared", "N27", functionsSQL,
		"and r.seq = p_seq and r.tx = p_prev", "and r.seq = p_seq", bySchedules),
	change("schedules-resolve-assumes-abort", "G4", functionsSQL,
		resolveAppends, `if true then`, bySchedules),
	change("schedules-no-void-written", "G4 N9", functionsSQL,
		resolveAppends, `if v_seq = p_seq then`, bySchedules),
	change("schedules-seal-only-locks", "G2 G6", functionsSQL,
		"set seq = p_seq + 1,\n               tx = p_tx,", "set seq = r.seq,\n               tx = r.tx,", bySchedules).and(withoutPositionKey),
	change("schedules-collision-accepted", "G2 N10", functionsSQL,
		`when r.holder <> v_holder then 'ZF006'`, ``, bySchedules),
}

package mutants

// schemaMutants are in tables, triggers, hashes, rights and properties of functions.
var schemaMutants = []Mutant{
	change("history-trigger-not-always", "HC1 N26", schemaSQL,
		`{{schema}}.history enable always trigger keep_history;`, `{{schema}}.history enable trigger keep_history;`,
		inPostgres("TestHistory_IsAppendOnly")),
	change("fence-trigger-not-always", "HB12", schemaSQL,
		`{{schema}}.resource enable always trigger keep_fence;`, `{{schema}}.resource enable trigger keep_fence;`,
		inPostgres("TestHistory_IsAppendOnly")),
	change("setting-trigger-not-always", "N20", schemaSQL,
		`{{schema}}.setting enable always trigger keep_fence;`, `{{schema}}.setting enable trigger keep_fence;`,
		inPostgres("TestHistory_IsAppendOnly")),
	change("hash-leaves-the-holder-out", "N28", functionsSQL,
		` || {{schema}}.lp(convert_to(p_holder, 'UTF8'))`, ``,
		inPostgres("TestHistory_HashCoversEveryColumn_N28")),
}

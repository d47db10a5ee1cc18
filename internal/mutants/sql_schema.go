package mutants

// schemaMutants are in tables, triggers, hashes, rights and properties of functions.
var schemaMutants = []Mutant{
	change("history-trigger-not-always", "HC1 N26", schemaSQL,
		`{{schema}}.history enable always trigger protect_history;`, `{{schema}}.history enable trigger protect_history;`,
		inPostgres("TestHistory_IsAppendOnly")),
	change("fence-trigger-not-always", "HB12", schemaSQL,
		`{{schema}}.resource enable always trigger protect_fence;`, `{{schema}}.resource enable trigger protect_fence;`,
		inPostgres("TestHistory_IsAppendOnly")),
	change("setting-trigger-not-always", "N20", schemaSQL,
		`{{schema}}.setting enable always trigger protect_fence;`, `{{schema}}.setting enable trigger protect_fence;`,
		inPostgres("TestHistory_IsAppendOnly")),
	change("hash-leaves-the-holder-out", "N28", functionsSQL,
		` || {{schema}}.length_prefixed(convert_to(p_holder, 'UTF8'))`, ``,
		inPostgres("TestHistory_HashCoversEveryColumn_N28")),
}

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
		` || convert_to(v_holder, 'UTF8')`, ``,
		inPostgres("TestHistory_HashCoversEveryColumn")),
	change("hash-does-not-tell-holder-from-name", "N28", functionsSQL,
		`
                                 || int4send(octet_length(v_holder))`, `
                                `,
		inPostgres("TestHistory_HashCoversEveryColumn")),
	change("hash-leaves-the-claim-out", "N28", functionsSQL,
		` || int8send(r.claim_seq)`, ``,
		inPostgres("TestHistory_HashCoversEveryColumn")),
	change("hash-leaves-the-ops-out", "N28", functionsSQL,
		` || coalesce(p_ops, '')`, ``,
		inPostgres("TestHistory_HashCoversEveryColumn")),
}

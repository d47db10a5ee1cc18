package guardtest

func Parts[Tx any]() []string {
	var names []string
	for _, p := range allParts[Tx]() {
		names = append(names, p.name)
	}
	return names
}

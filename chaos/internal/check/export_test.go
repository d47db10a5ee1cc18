package check

import "github.com/anishathalye/porcupine"

// Decisive and RegisterModel are for tests.
var (
	Decisive      = decisive
	RegisterModel = registerModel
)

// Access returns an operation on the fenced register of a resource.
func Access(action string, token, call, end int64) porcupine.Operation {
	return porcupine.Operation{Input: access{act(action), grant{1, token}, "w9-1"}, Call: call, Return: end}
}

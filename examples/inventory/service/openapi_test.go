package service

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"
)

func TestOpenAPI_NamesTheRoutesOfTheServer(t *testing.T) {
	var file struct {
		Paths map[string]map[string]any
	}
	require.NoError(t, yaml.Unmarshal(openAPIFile, &file))
	var routes, operations []string
	for route := range (&api{}).routes() {
		routes = append(routes, route)
	}
	for path, item := range file.Paths {
		for method := range item {
			operations = append(operations, strings.ToUpper(method)+" "+path)
		}
	}
	require.ElementsMatch(t, routes, operations)
}

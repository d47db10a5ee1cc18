package service

import (
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"
)

// description is openapi.yaml, and what tests have seen of it.
type description struct {
	root map[string]any

	mu   sync.Mutex
	seen map[string]bool // "GET /v1/skus 200"
}

func newDescription(t testing.TB) *description {
	t.Helper()
	d := &description{seen: map[string]bool{}}
	require.NoError(t, yaml.Unmarshal(openAPIFile, &d.root))
	return d
}

// operations returns the responses of each operation: "GET /v1/skus" -> "200" -> …
func (d *description) operations() map[string]map[string]any {
	operations := map[string]map[string]any{}
	for path, item := range d.root["paths"].(map[string]any) {
		for method, operation := range item.(map[string]any) {
			operations[strings.ToUpper(method)+" "+path] = operation.(map[string]any)["responses"].(map[string]any)
		}
	}
	return operations
}

// check fails unless the response is as the file says. What the mux answers by
// itself, where there is no operation, is not in the file.
func (d *description) check(method, path string, status int, header http.Header, body []byte) error {
	for operation, responses := range d.operations() {
		verb, template, _ := strings.Cut(operation, " ")
		if verb != method || !matches(template, path) {
			continue
		}
		what := fmt.Sprintf("%s %d", operation, status)
		response, ok := d.resolve(responses[fmt.Sprint(status)]).(map[string]any)
		if !ok {
			return fmt.Errorf("%s is not described", what)
		}
		d.mu.Lock()
		d.seen[what] = true
		d.mu.Unlock()
		if err := d.checkResponse(response, header, body); err != nil {
			return fmt.Errorf("%s: %w\n%s", what, err, body)
		}
		return nil
	}
	if status != http.StatusNotFound && status != http.StatusMethodNotAllowed {
		return fmt.Errorf("%s %s is not described, and answered with %d", method, path, status)
	}
	return nil
}

func matches(template, path string) bool {
	pattern := regexp.QuoteMeta(template)
	pattern = regexp.MustCompile(`\\\{[a-z]+\\\}`).ReplaceAllString(pattern, "[^/]+")
	return regexp.MustCompile("^" + pattern + "$").MatchString(path)
}

func (d *description) checkResponse(response map[string]any, header http.Header, body []byte) error {
	headers, _ := response["headers"].(map[string]any)
	for name, h := range headers {
		if header.Get(name) == "" {
			return fmt.Errorf("header %s is missing", name)
		}
		if err := d.valid(h.(map[string]any)["schema"], header.Get(name), name); err != nil {
			return err
		}
	}
	media, ok := response["content"].(map[string]any)[header.Get("Content-Type")].(map[string]any)
	if !ok {
		return fmt.Errorf("content type %q is not described", header.Get("Content-Type"))
	}
	schema, ok := media["schema"]
	if !ok {
		return nil
	}
	var value any
	if err := json.Unmarshal(body, &value); err != nil {
		return err
	}
	return d.valid(schema, value, "body")
}

// resolve follows a reference, if node is one.
func (d *description) resolve(node any) any {
	object, _ := node.(map[string]any)
	reference, ok := object["$ref"].(string)
	if !ok {
		return node
	}
	var at any = d.root
	for _, name := range strings.Split(strings.TrimPrefix(reference, "#/"), "/") {
		at = at.(map[string]any)[name]
	}
	return at
}

func TestOpenAPI_NamesTheRoutesOfTheServer(t *testing.T) {
	var routes, operations []string
	for route := range (&api{}).routes() {
		routes = append(routes, route)
	}
	for operation := range newDescription(t).operations() {
		operations = append(operations, operation)
	}
	require.ElementsMatch(t, routes, operations)
}

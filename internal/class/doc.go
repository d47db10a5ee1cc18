// Package class says which class a resource belongs to: the part of its name before the first
// slash. Metrics and profiles are labelled by class, since there may be millions of resources. A
// Set bounds how many classes there are, so that names without a slash don't make a metric for
// each.
package class

select 'timeline-unknown' as finding from {schema}.setting where not tells_timeline

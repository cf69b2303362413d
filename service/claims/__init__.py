"""The claims of a long answer: found, scored and judged one by one."""
